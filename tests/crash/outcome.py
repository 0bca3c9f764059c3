"""What a campaign of kills did, and its table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from tests.crash.moments import Moment, Phase

CAUGHT = ("publishes", "deliveries", "acks", "waits", "loops", "halves")
"""Kinds of work that a kill may catch in the middle: not answered, or answered and still to be delivered or decided."""


@dataclass(slots=True)
class Kill:
    """One kill: what it caught in the middle, and how long the restart took in seconds.

    `reached`: the process died at the call; otherwise the call did not come, and it was killed without or had ended.
    """

    moment: Moment
    reaper: str = ""
    pulls: int = 0
    publishes: int = 0
    deliveries: int = 0
    acks: int = 0
    waits: int = 0
    loops: int = 0
    halves: int = 0
    reached: bool = True
    restart_seconds: float = 0.0

    @property
    def call(self) -> str:
        """The call at which the process died, by its reaper's name."""
        return f"{self.reaper} {self.moment.call}" if self.reaper and self.reached else "at random"


@dataclass(slots=True)
class Outcome:
    """A campaign's figures; `+=` adds another's."""

    seed: int
    kills: list[Kill] = field(default_factory=list)
    acknowledged: int = 0
    delivered: int = 0
    events: Counter[str] = field(default_factory=Counter)

    def __iadd__(self, other: Outcome) -> Outcome:
        self.kills += other.kills
        self.acknowledged += other.acknowledged
        self.delivered += other.delivered
        self.events += other.events
        return self

    @property
    def strict(self) -> int:
        """Kills at random, each of which caught every kind of work in the middle."""
        return sum(not kill.reaper and all(getattr(kill, each) for each in CAUGHT) for kill in self.kills)

    def table(self) -> str:
        """Return the figures for people: a line per call, with kills per phase of the node's life."""
        lines = [
            f"{'killed':<28} {'kills':>5} " + " ".join(f"{phase:>8}" for phase in Phase) + "  caught: "
            "publishes deliveries  acks waits loops halves  slowest restart"
        ]
        for call in sorted({kill.call for kill in self.kills}):
            lines.append(_line(call, [kill for kill in self.kills if kill.call == call]))
        lines.append(_line("all", self.kills))
        missed = Counter(kill.moment.call for kill in self.kills if not kill.reached)
        if missed:
            names = ", ".join(f"{call} {count}" for call, count in sorted(missed.items()))
            lines.append(f"calls that did not come in time (killed at random, or after the stop, instead): {names}")
        lines.append(
            f"seed {self.seed}: {len(self.kills)} kills, {self.strict} of them at random with all kinds of work in the "
            f"middle; {self.acknowledged} publishes acknowledged, {self.events['loop_added']} loops, "
            f"{self.events['half_stored']} halves, {self.delivered} deliveries; nothing lost, early or undone, nothing "
            "acknowledged came again, no key out of order"
        )
        return "\n".join(lines)


def _line(name: str, kills: Iterable[Kill]) -> str:
    kills = list(kills)
    phases = Counter(kill.moment.phase for kill in kills)
    caught = [sum(getattr(kill, each) for kill in kills) for each in CAUGHT]
    return (
        f"{name:<28} {len(kills):>5} "
        + " ".join(f"{phases[phase]:>8}" for phase in Phase)
        + f"          {caught[0]:>9} {caught[1]:>10} {caught[2]:>5} {caught[3]:>5} {caught[4]:>5} {caught[5]:>6}  "
        f"{max(kill.restart_seconds for kill in kills):>13.2f} s"
    )
