"""The documentation stands on three shelves, and its links lead somewhere."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
DOCS = ROOT / "docs"
SHELVES = ("For application developers", "For operators", "For makers")
PAGES = [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]
_LINK = re.compile(r"\]\(([^)\s]+)\)")


def links(text: str) -> list[str]:
    """Targets of links that are no addresses of the web, those in code blocks left out."""
    prose = re.sub(r"```.*?```|`[^`\n]*`", "", text, flags=re.DOTALL)
    return [each for each in _LINK.findall(prose) if "://" not in each]


def anchors(page: Path) -> set[str]:
    """Names of a page's headings, as they are linked."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", each.lower()).replace(" ", "-") for each in headings}


def test_each_page_stands_on_one_shelf() -> None:
    """A page that is new is entered in docs/README.md, once."""
    text = (DOCS / "README.md").read_text()
    parts = re.split(r"^## (.*)$", text, flags=re.MULTILINE)
    shelves = dict(zip(parts[1::2], parts[2::2], strict=True))
    assert tuple(shelves) == SHELVES
    placed = [link for shelf in shelves.values() for link in links(shelf)]
    assert sorted(placed) == sorted(str(page.relative_to(DOCS)) for page in PAGES[1:] if page != DOCS / "README.md")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    """Files and headings that a page links to are there."""
    wrong = []
    for link in links(page.read_text()):
        file, _, heading = link.partition("#")
        target = (page.parent / file).resolve() if file else page
        if not target.exists() or (heading and heading not in anchors(target)):
            wrong.append(link)
    assert not wrong


def test_each_page_is_in_the_navigation_of_the_site() -> None:
    """The first page of the site leads to each page by its shelf."""
    names = runpy.run_path(str(DOCS / "conf.py"))
    source = [(DOCS / "README.md").read_text()]
    names["read_page"](None, "README", source)
    trees = re.findall(r"```\{toctree\}\n:hidden:\n:caption: (.*)\n\n([^`]*)```", source[0])
    assert tuple(caption for caption, _ in trees) == SHELVES
    listed = [page for _, pages in trees for page in pages.split()]
    wanted = (page.relative_to(DOCS).with_suffix("") for page in PAGES[1:] if page != DOCS / "README.md")
    assert sorted(listed) == sorted(map(str, wanted))
