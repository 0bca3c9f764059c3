"""What a scenario saw of a table: which rows were walked, and that nothing happened that no row tells."""

from __future__ import annotations

from collections.abc import Hashable, Mapping

from tests.lifecycle.tables import Row, Table


class NotInTable(AssertionError):
    """Something happened that the page does not tell."""


class Walk:
    """Follows things through the states of one table.

    Attributes:
        states: Where each thing is; "" before it was seen.
        walked: Rows that something went along.
        last: The last of them.
    """

    def __init__(self, table: Table) -> None:
        self.table = table
        self.states: dict[Hashable, str] = {}
        self.walked: set[Row] = set()
        self.last: Row | None = None

    def begins(self, thing: Hashable, state: str) -> None:
        """Follow a thing from a state on that the table does not tell the way to."""
        self.states[thing] = state

    def saw(self, thing: Hashable, state: str) -> None:
        """Note where a thing is now; what it did in between is one row, told by its two ends.

        Raises:
            NotInTable: No row leads there, or more than one does and the scenario does not say which.
        """
        before = self.states.get(thing, "")
        if state == before:
            return
        rows = self.table.rows_between(before, state)
        if len(rows) != 1:
            why = "several rows lead there; say which" if rows else "no row leads there"
            raise NotInTable(f"{self.table.name}: {thing!r} went from {before!r} to {state!r}: {why}")
        self.walked.add(rows[0])
        self.last = rows[0]
        self.states[thing] = state

    def saw_all(self, states: Mapping[Hashable, str]) -> None:
        """`saw` for each of them."""
        for thing, state in states.items():
            self.saw(thing, state)

    def went(self, thing: Hashable, state: str, *events: str) -> None:
        """Note that a thing is in a state now, and which events brought it there, one after the other.

        Args:
            thing: What.
            state: Where it is, as observed.
            events: How each row's event begins.

        Raises:
            NotInTable: The rows do not lead there.
        """
        here = self.states.get(thing, "")
        rows = []
        for event in events:
            found = self.table.rows_of(here, event)
            if len(found) != 1:
                raise NotInTable(f"{self.table.name}: {len(found)} rows for state {here!r} and event {event!r}")
            rows.append(found[0])
            here = found[0].next
        if here != state:
            raise NotInTable(f"{self.table.name}: {events} leads {thing!r} to {here!r}, and it is {state!r}")
        self.walked.update(rows)
        self.last = rows[-1] if rows else self.last
        self.states[thing] = state

    def missing(self) -> list[Row]:
        """Rows that nothing went along."""
        return [row for row in self.table.rows if row not in self.walked]
