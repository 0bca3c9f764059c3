"""The pages that are made from the code are what `make docs` writes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools import cli_doc
from tools.docs import PAGES
from tools.numbers import without_numbers

DOCS = Path(__file__).parents[3] / "docs"


# Other tests of this process declare metrics for themselves: `test_admin_metrics` leaves those out.
@pytest.mark.parametrize("name", sorted(PAGES.keys() - {"metrics"}))
def test_page_is_made_from_the_code(name: str) -> None:
    """`make docs` writes it again."""
    assert (DOCS / f"{name}.md").read_text(encoding="utf-8") == PAGES[name](), "run `make docs`"


def test_each_page_that_is_made_from_the_code_is_written() -> None:
    """A new generator is entered in `PAGES`."""
    pages = {path.stem: path.read_text(encoding="utf-8")[:600] for path in DOCS.glob("*.md")}
    assert set(PAGES) == {name for name, head in pages.items() if "make docs" in head}


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
