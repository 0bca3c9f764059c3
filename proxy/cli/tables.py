"""Tables of text that fit a terminal; identifiers and numbers are never cut or broken.

A table that is too wide changes in this order: sentences are folded at spaces; the lines between columns go; columns
that are empty in all rows go; each row becomes a record, with each value behind its column's name. Only an identifier
that is longer than a line exceeds the width, alone on its line, so that it can be copied.
"""

from __future__ import annotations

import io
import textwrap
from collections.abc import Sequence

_BETWEEN = "   "
_FRAMED, _BARE = (3, 1), (2, 0)
"""Characters that a column and the table take beside the text: with lines between columns, and without."""


def draw(
    title: str,
    columns: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    right: Sequence[int],
    width: int,
    encoding: str = "utf-8",
    colours: bool = False,
) -> str:
    """Return a table as text.

    Args:
        title: Above the table.
        columns: Headings.
        rows: Cells, as they are to be shown.
        right: Indexes of columns that are aligned to the right.
        width: Columns of the terminal.
        encoding: What is drawn with it has no other characters.
        colours: Whether the terminal takes them.
    """
    filled = [place for place in range(len(columns)) if any(row[place] for row in rows)]
    shortened = ([columns[place] for place in filled], [[row[place] for place in filled] for row in rows])
    aligned = [number for number, place in enumerate(filled) if place in right]
    for framed, heads, cells, places in (
        (True, columns, rows, right),
        (False, columns, rows, right),
        (False, *shortened, aligned),
    ):
        beside, around = _FRAMED if framed else _BARE
        widths = _widths(heads, cells, width - beside * len(heads) - around)
        if widths is not None and heads:
            return _table(title, heads, cells, widths, places, framed, width, encoding, colours)
    return _records(title, columns, rows, width)


def folded(text: str, width: int, *, first: str = "", then: str = "") -> list[str]:
    """Return a sentence in lines of at most `width`, without breaking a word.

    Args:
        text: The sentence.
        width: Columns of the terminal.
        first: Before the first line.
        then: Before each further line.
    """
    lines: list[str] = []
    for line in text.splitlines():
        fold = textwrap.TextWrapper(width, first, then, break_long_words=False, break_on_hyphens=False)
        lines.extend(fold.wrap(line) or [first])
        first = then
    return lines or [first]


def _widths(columns: Sequence[str], rows: Sequence[Sequence[str]], room: int) -> list[int] | None:
    """Return how wide the columns are where words stay whole; None when there is no room for that."""
    from rich.cells import cell_len

    natural = [cell_len(name) for name in columns]
    least = [max(map(cell_len, name.split())) for name in columns]
    for row in rows:
        for place, cell in enumerate(row):
            long = cell_len(cell)
            natural[place] = max(natural[place], long)
            if long > least[place]:
                least[place] = max([least[place], *map(cell_len, cell.split())])
    if sum(least) > room:
        return None
    while (excess := sum(natural) - room) > 0:
        place = max(range(len(natural)), key=lambda each: natural[each] - least[each])
        natural[place] -= min(excess, max(1, (natural[place] - least[place]) // 2))
    return natural


def _table(  # noqa: PLR0917 - parts of one drawing
    title: str,
    columns: Sequence[str],
    rows: Sequence[Sequence[str]],
    widths: Sequence[int],
    right: Sequence[int],
    framed: bool,
    width: int,
    encoding: str,
    colours: bool,
) -> str:
    from rich.box import HEAVY_HEAD, SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    # The title is a line of its own: within the table it would be folded to its width.
    box, pad = (HEAVY_HEAD, (0, 1)) if framed else (SIMPLE_HEAD, (0, 1, 0, 0))
    table = Table(box=box, padding=pad, pad_edge=framed, show_edge=framed)
    for place, (column, size) in enumerate(zip(columns, widths, strict=True)):
        table.add_column(column, justify="right" if place in right else "left", width=size, overflow="fold")
    for row in rows:
        table.add_row(*map(Text, row))
    # Rich draws with what the encoding of its file has.
    drawn = io.TextIOWrapper(io.BytesIO(), encoding=encoding, errors="backslashreplace")
    console = Console(file=drawn, highlight=False, width=width, force_terminal=colours)
    console.print(Text("\n".join(folded(title, width)), style="italic"), soft_wrap=True)
    console.print(table)
    drawn.seek(0)
    return drawn.read()


def _records(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]], width: int) -> str:
    """One record below the other, each value with its name; what is empty is left out."""
    lines = folded(title, width)
    for row in rows:
        line = ""
        for name, cell in zip(columns, row, strict=True):
            if not cell:
                continue
            pair = f"{name}: {cell}"
            if line and len(line) + len(_BETWEEN) + len(pair) <= width:
                line += _BETWEEN + pair
                continue
            *before, line = [
                *([line] if line else []),
                *folded(pair, width, first=_BETWEEN if line else "", then=_BETWEEN),
            ]
            lines.extend(before)
        lines.append(line)
    return "\n".join(lines) + "\n"
