"""`make docs` writes the pages that say that they are made from the code."""

from __future__ import annotations

from pathlib import Path

from tools.docs import PAGES

ROOT = Path(__file__).parents[3]


def test_each_page_that_is_made_from_the_code_is_written() -> None:
    """A new generator is entered in `PAGES`."""
    pages = {path.stem: path.read_text(encoding="utf-8")[:600] for path in (ROOT / "docs").glob("*.md")}
    assert set(PAGES) == {name for name, head in pages.items() if "make docs" in head}
