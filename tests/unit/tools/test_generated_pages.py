"""docs/findings.md, docs/commands.md and docs/codes.md are what `make docs` writes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tools import cli_doc, codes_doc, findings_doc
from tools.numbers import without_numbers

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


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ("waits (D9). A", "waits. A"),
        ("one (R40; counted with keys)", "one (counted with keys)"),
        ("raises it (R, 1.1.9; W6): the", "raises it: the"),
        ("try (R94, R95), (S3)", "try,"),
        ("code D (RFC 9535)", "code D (RFC 9535)"),
    ],
)
def test_numbers_of_decisions_are_left_out_of_pages_for_users(text: str, plain: str) -> None:
    """Other words in the same brackets stay."""
    assert without_numbers(text) == plain
