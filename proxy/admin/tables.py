"""Tables of the status page: bounded, escaped, and stacked into cards on a narrow screen by the style sheet."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import NamedTuple

ROWS_MAX = 50


class Cell(NamedTuple):
    """One cell: its text (escaped when rendered), style classes, link, what it says besides, a chip's colour."""

    text: str
    classes: str = ""
    link: str | None = None
    title: str | None = None
    chip: str | None = None


def table(
    title: str,
    header: Sequence[str],
    rows: Sequence[Iterable[Cell]],
    empty: str,
    *,
    total: int | None = None,
    note: str = "",
    rows_max: int = ROWS_MAX,
) -> str:
    """Return a section; a header that begins with # heads a column of figures. `total` says how many there are."""
    count = len(rows) if total is None else max(total, len(rows))
    if not note and count > min(len(rows), rows_max):
        note = f"{min(len(rows), rows_max):,} of {count:,}"
    heading = f"<h2>{escape(title)} <small>{escape(note)}</small></h2>"
    if not rows:
        return f'{heading}<div class="wrap"><p class="none">{escape(empty)}</p></div>'
    names = [name.removeprefix("#") for name in header]
    heads = "".join(
        f'<th class="n">{escape(name)}</th>' if raw.startswith("#") else f"<th>{escape(name)}</th>"
        for raw, name in zip(header, names, strict=True)
    )
    body = "".join(
        f"<tr>{''.join(_cell(cell, name) for cell, name in zip(row, names, strict=True))}</tr>"
        for row in rows[:rows_max]
    )
    return f'{heading}<div class="wrap"><table><thead><tr>{heads}</tr></thead><tbody>{body}</tbody></table></div>'


def _cell(cell: Cell, label: str) -> str:
    text = escape(cell.text)
    if cell.link is not None:
        text = f'<a href="{escape(cell.link)}">{text}</a>'
    if cell.chip is not None:
        text = f'<span class="chip {cell.chip}">{text}</span>'
    title = f' title="{escape(cell.title)}"' if cell.title else ""
    classes = f' class="{cell.classes}"' if cell.classes else ""
    return f'<td{classes}{title} data-label="{escape(label)}">{text}</td>'
