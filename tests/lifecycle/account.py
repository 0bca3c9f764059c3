"""What was answered before a stop, and what must hold of it for ever: one checker for every table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field


@dataclass
class Account:
    """The facts of one run, over its stops.

    Attributes:
        promised: What must become visible once, with the wall ms before which it must not.
        possible: What may become visible once, likewise: it was asked for and not answered.
        forbidden: What must not become visible after it was answered that it will not (cancelled, rolled back).
        units: Sets of things that are visible together or not at all.
        visible: Thing and wall ms of its storing, by where it was seen.
        finished: What was answered as done, with how often it had been handed out by then.
        handed: How often a thing was handed out.
        open_ones: What is still open at the end and should not be.
    """

    promised: dict[Hashable, int] = field(default_factory=dict)
    possible: dict[Hashable, int] = field(default_factory=dict)
    forbidden: set[Hashable] = field(default_factory=set)
    units: list[frozenset[Hashable]] = field(default_factory=list)
    visible: dict[Hashable, tuple[Hashable, int]] = field(default_factory=dict)
    finished: dict[Hashable, int] = field(default_factory=dict)
    handed: Counter[Hashable] = field(default_factory=Counter)
    open_ones: set[Hashable] = field(default_factory=set)

    def asked(self, thing: Hashable, not_before: int = 0) -> None:
        """It is about to be asked for: from now on it may become visible."""
        self.possible[thing] = not_before

    def answered(self, *things: Hashable) -> None:
        """It was answered that they will be visible."""
        for thing in things:
            self.promised[thing] = self.possible.pop(thing)

    def unsure(self, thing: Hashable) -> None:
        """Something is about to be asked that may end it: it may become visible or not."""
        if thing in self.promised:
            self.possible[thing] = self.promised.pop(thing)

    def forbid(self, thing: Hashable) -> None:
        """It was answered that it will never be visible."""
        self.promised.pop(thing, None)
        self.possible.pop(thing, None)
        self.forbidden.add(thing)

    def one(self, things: Iterable[Hashable]) -> None:
        """These are visible together or not at all."""
        self.units.append(frozenset(things))

    def hand(self, thing: Hashable) -> None:
        """It is handed to a consumer."""
        self.handed[thing] += 1

    def finish(self, thing: Hashable) -> None:
        """It was answered that the consumer is done with it."""
        self.finished[thing] = self.handed[thing]

    def see(self, place: Hashable, thing: Hashable, at_ms: int = 0) -> None:
        """It is visible at a place, stored at this wall ms; the same place may be told again."""
        self.visible[place] = (thing, at_ms)

    def broken(self) -> list[str]:
        """Say what does not hold, one sentence for each; empty if all does."""
        counts = Counter(thing for thing, _ in self.visible.values())
        found = [f"{thing!r} was answered and is lost" for thing in self.promised if not counts[thing]]
        found += [f"{thing!r} is visible {count} times" for thing, count in counts.items() if count > 1]
        found += [f"{thing!r} was answered as ended and is visible" for thing in self.forbidden if counts[thing]]
        allowed = {**self.possible, **self.promised}
        for thing, at_ms in self.visible.values():
            if thing not in allowed and thing not in self.forbidden:
                found.append(f"{thing!r} is visible and nobody asked for it")
            elif at_ms < allowed.get(thing, 0):
                found.append(f"{thing!r} is {allowed[thing] - at_ms} ms early")
        for unit in self.units:
            there = sorted(repr(thing) for thing in unit if counts[thing])
            if 0 < len(there) < len(unit):
                found.append(f"{len(there)} of {len(unit)} of one unit are visible: {', '.join(there)}")
        for thing, times in self.finished.items():
            if self.handed[thing] > times:
                found.append(f"{thing!r} was acknowledged and is handed out again")
        found += [f"{thing!r} is stuck" for thing in sorted(self.open_ones, key=repr)]
        return found
