"""Tables of text that fit a terminal and cut nothing: sentences are folded at spaces, words are never broken.

What does not fit even so is shown one record below the other, each value with its name before it: an identifier can
be copied wherever it stands.
"""

from __future__ import annotations

import io
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
    for framed, (beside, around) in ((True, _FRAMED), (False, _BARE)):
        widths = _widths(columns, rows, width - beside * len(columns) - around)
        if widths is not None:
            return _table(title, columns, rows, widths, right, framed, width, encoding, colours)
    return _records(title, columns, rows, width)


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
    console.print(Text(title, style="italic"), soft_wrap=True)
    console.print(table)
    drawn.seek(0)
    return drawn.read()


def _records(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]], width: int) -> str:
    """One record below the other, each value with its name; what is empty is left out."""
    lines = [title]
    for row in rows:
        line = ""
        for name, cell in zip(columns, row, strict=True):
            pair = f"{name}: {cell}"
            if not cell:
                continue
            if line and len(line) + len(_BETWEEN) + len(pair) > width:
                lines.append(line)
                line = f"{_BETWEEN}{pair}"
            else:
                line += f"{_BETWEEN}{pair}" if line else pair
        lines.append(line)
    return "\n".join(lines) + "\n"
