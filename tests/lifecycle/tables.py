"""The tables of states and events in docs/: `| state | event | next |`.

Columns behind these three are for the reader. A cell of states may name several, with commas: a row for each. `next` is
the state that it begins with, or ends with after a colon (`put again as level 1: waiting`); the rest is for the reader.
The empty state is what a thing is in before it is there.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import NamedTuple

DOCS = Path(__file__).parents[2] / "docs"
_HEADER = ["state", "event", "next"]


class Row(NamedTuple):
    """One line of a table."""

    state: str
    event: str
    next: str


@dataclass(frozen=True, slots=True)
class Table:
    """One table.

    Attributes:
        name: `page.md: heading`.
        rows: Its lines, in order.
    """

    name: str
    rows: tuple[Row, ...]

    def rows_of(self, state: str, event: str) -> list[Row]:
        """Rows of a state whose event is this, else those whose event begins with it."""
        found = [row for row in self.rows if row.state == state and row.event.startswith(event)]
        return [row for row in found if row.event == event] or found

    def rows_between(self, state: str, following: str) -> list[Row]:
        """Rows that lead from one state to another."""
        return [row for row in self.rows if (row.state, row.next) == (state, following)]


def read_tables(text: str, page: str) -> list[Table]:
    """Return the tables of one page."""
    tables: list[Table] = []
    heading = ""
    cells: list[list[str]] | None = None
    for line in [*text.splitlines(), ""]:
        if line.startswith("#"):
            heading = line.lstrip("#").strip()
        if line.startswith("|"):
            found = [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
            if cells is not None:
                cells.append(found)
            elif found[:3] == _HEADER:
                cells = []
        elif cells is not None:
            tables.append(_table(f"{page}: {heading}", cells[1:]))
            cells = None
    return tables


@cache
def all_tables() -> dict[str, Table]:
    """Every table of every page, by name.

    Raises:
        ValueError: Two tables stand under one heading.
    """
    tables: dict[str, Table] = {}
    for path in sorted(DOCS.glob("*.md")):
        for table in read_tables(path.read_text(encoding="utf-8"), path.name):
            if table.name in tables:
                raise ValueError(f"{table.name} has two tables of states: give each a heading of its own")
            tables[table.name] = table
    return tables


def _table(name: str, lines: list[list[str]]) -> Table:
    states = {state for line in lines for state in _listed(line[0])}
    rows = [
        Row(state, event, _following(following, states))
        for before, event, following, *_ in lines
        for state in _listed(before)
    ]
    return Table(name, tuple(rows))


def _listed(cell: str) -> list[str]:
    return [state.strip() for state in cell.split(",")]


def _following(cell: str, states: set[str]) -> str:
    named = [state for state in states if state and re.match(re.escape(state) + r"(?!\w)", cell)]
    if named:
        return max(named, key=len)
    last = cell.rpartition(":")[2].strip()
    return last if last in states else re.split(r"[,:;]", cell)[0].strip()
