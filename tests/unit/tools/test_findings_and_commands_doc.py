"""docs/findings.md, docs/commands.md and docs/codes.md are what `make docs` writes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tools import cli_doc, codes_doc, findings_doc

DOCS = Path(__file__).parents[3] / "docs"


@pytest.mark.parametrize(
    ("name", "render"),
    [("findings", findings_doc.render), ("commands", cli_doc.render), ("codes", codes_doc.render)],
)
def test_page_is_made_from_the_code(name: str, render: Callable[[], str]) -> None:
    """`make docs` writes it again."""
    assert (DOCS / f"{name}.md").read_text(encoding="utf-8") == render(), "run `make docs`"


def test_every_option_has_a_meaning() -> None:
    """No row of an option, and no command, is without its text."""
    page = cli_doc.render()
    assert "|  |" not in page.replace(" |  |\n", " |\n")
    assert "\n\n\n" not in page
    assert "| `--delay-level N` | " in page
