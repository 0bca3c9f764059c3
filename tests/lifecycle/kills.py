"""The driver: one run for each change of the disk that a scenario makes, ended there, started again, and checked."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from random import Random

from pyddmq.testing import PowerCut
from tests.lifecycle.registry import ELSEWHERE
from tests.lifecycle.scenario import DAY_S, Moment, Scenario
from tests.lifecycle.tables import Row, all_tables
from tests.lifecycle.walk import Walk
from tests.tried import tried

FAULTS = (
    "kill",
    "power loss",
    "kill, and files that can be made anew are gone",
    "kill, and a page is bad",
    "again, while it starts",
)
DOWN_DAYS = (0, 8, 400)
"""How long nothing runs after the stop."""
AGAIN_CHANGES = 60
"""A start makes about so many changes."""
AGAIN_SHARE = 0.3


@dataclass(frozen=True, slots=True)
class KillPoint:
    """Where a run ends and what comes after: the number of changes before it, a kill or a power loss, what goes.

    `spoiled` names files with a page that cannot be read from then on. `again`: after so many changes the start that
    follows ends in the same way; -1: it does not.
    """

    changes: int
    power: bool
    lost: tuple[str, ...]
    down_days: int
    spoiled: str = ""
    again: int = -1

    @property
    def fault(self) -> str:
        """Which of `FAULTS` it is."""
        return FAULTS[4 if self.again >= 0 else 1 if self.power else 2 if self.lost else 3 if self.spoiled else 0]


def row_name(table: str, row: Row) -> str:
    """Return a row of a table in a line."""
    return f"{table}: {row.state or 'nothing'}, {row.event}"


def row_names() -> list[str]:
    """Return all rows that scenarios go along."""
    return [row_name(name, row) for name, table in all_tables().items() if name not in ELSEWHERE for row in table.rows]


def whole(kind: type[Scenario], seed: int, *, beside: bool = False) -> tuple[Walk, int, list[str]]:
    """Run a scenario to its end: what it walked, how many changes it made, and what did not hold."""
    moment = Moment(seed, beside=beside)
    walk = Walk(all_tables()[kind.table])
    scenario = kind(moment)
    scenario.walk(walk)
    changes = moment.disk.operations
    moment.end(power=False)
    scenario.finish()
    return walk, changes, moment.account.broken()


def run(kind: type[Scenario], seed: int, point: KillPoint, *, beside: bool = False) -> list[str]:
    """End a scenario at a kill point, start again, and say what does not hold."""
    moment = Moment(seed, stop_at=point.changes, beside=beside)
    scenario = kind(moment)
    walk = Walk(all_tables()[kind.table])
    with contextlib.suppress(PowerCut):
        scenario.walk(walk)
    after = [] if walk.last is None else [row_name(kind.table, walk.last)]
    tried("lifecycle", point.fault, operations=after, states=["beside the loop" if beside else "at once"])
    moment.end(power=point.power)
    moment.lose(kind.root, point.lost)
    if point.spoiled:
        moment.spoil(kind.root, point.spoiled)
    moment.clock.advance(point.down_days * DAY_S)
    if point.again >= 0:
        moment.disk.stop_after(point.again)
        with contextlib.suppress(PowerCut):
            scenario.finish()
        moment.end(power=point.power)
        moment.account.open_ones.clear()
    scenario.finish()
    return moment.account.broken()


def met(kind: type[Scenario], seed: int) -> Counter[str]:
    """What kill points of a whole run beside the loop meet under way there, and how many of them."""
    moment = Moment(seed, beside=True)
    found: Counter[str] = Counter()
    step = moment.disk.step

    def noted(operation: str, path: str, partly: Callable[[], None] | None = None) -> None:
        found[moment.under_way()] += 1
        step(operation, path, partly)

    moment.disk.step = noted  # type: ignore[method-assign]
    kind(moment).walk(Walk(all_tables()[kind.table]))
    return found


def every(kind: type[Scenario], changes: int) -> Iterator[KillPoint]:
    """All kill points of a scenario: each change, killed, without power, and twice; losses and downtimes in turn."""
    for number in range(changes):
        yield _point(kind, number, power=False, turn=number)
        yield _point(kind, number, power=True, turn=number)
        again = number * len(kind.losses) % AGAIN_CHANGES
        yield _point(kind, number, power=number % 2 == 1, turn=number, again=again)


def some(kind: type[Scenario], changes: int, count: int, random: Random) -> Iterator[KillPoint]:
    """A few of them, spread over the whole run: one in each of `count` equal parts."""
    for number in range(count):
        first, end = number * changes // count, max((number + 1) * changes // count, number * changes // count + 1)
        again = random.randrange(AGAIN_CHANGES) if random.random() < AGAIN_SHARE else -1
        power, turn = random.random() < 0.5, random.randrange(1 << 16)
        yield _point(kind, random.randrange(first, end), power=power, turn=turn, again=again)


def _point(kind: type[Scenario], changes: int, *, power: bool, turn: int, again: int = -1) -> KillPoint:
    """Files go, or pages go bad, after a kill only: a power loss takes copies of its own, and one loss is promised."""
    lost = () if power else tuple(kind.losses[turn % len(kind.losses)])
    spoiled = "" if power or lost else kind.spoils[turn // len(kind.losses) % len(kind.spoils)]
    return KillPoint(changes, power, lost, DOWN_DAYS[turn // len(kind.losses) % len(DOWN_DAYS)], spoiled, again)
