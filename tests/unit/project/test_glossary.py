"""docs/glossary.md: one meaning per word."""

from __future__ import annotations

import re
from collections import Counter

from tests.unit.project.test_house_rules import ROOT

_ROW = re.compile(r"^\| ([^|]+) \|", re.MULTILINE)


def test_each_word_has_one_row() -> None:
    """No word is defined twice."""
    words = [row.strip() for row in _ROW.findall((ROOT / "docs" / "glossary.md").read_text(encoding="utf-8"))]
    assert len(words) > 50
    assert not [word for word, count in Counter(words).items() if count > 1]
