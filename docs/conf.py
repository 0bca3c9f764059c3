"""Makes a searchable site of these pages with Sphinx: `make site`.

The shelves of README.md are the navigation.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parent
PROJECT = DOCS.parent

project = "pyddmq"
version = release = re.findall(r'^version = "(.*)"', (PROJECT / "pyproject.toml").read_text(encoding="utf-8"), re.M)[0]
root_doc = "README"
extensions = ["myst_parser"]
html_theme = "furo"
html_title = f"pyddmq {version}"
html_copy_source = False
html_show_sphinx = False
myst_heading_anchors = 4
# Mermaid and text blocks have no lexer.
suppress_warnings = ["misc.highlighting_failure"]

_SHELF = re.compile(r"^## (.*)$", re.M)
_PAGE = re.compile(r"\]\(((?:howto/)?[\w-]+)\.md\)")
_OUTSIDE = re.compile(r"\[([^\]]*)\]\((?:\.\./)+(?!docs/)[^)]*\)")


def read_page(app: Any, name: str, source: list[str]) -> None:
    """Give the first page its navigation, and turn links to files beside the pages into plain text."""
    text = _OUTSIDE.sub(r"\1", source[0]) if name != "README" else source[0]
    if name == root_doc:
        _, *parts = _SHELF.split(text)
        for title, shelf in zip(parts[::2], parts[1::2], strict=True):
            pages = "\n".join(_PAGE.findall(shelf))
            text += f"\n```{{toctree}}\n:hidden:\n:caption: {title}\n\n{pages}\n```\n"
    source[0] = text


def setup(app: Any) -> dict[str, bool]:
    """Have each page read by `read_page`."""
    app.connect("source-read", read_page)
    return {"parallel_read_safe": True}
