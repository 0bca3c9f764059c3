"""When a node is killed: in which phase of its life, at which call, and how a campaign's moments are drawn."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from random import Random
from typing import Protocol


class Phase(StrEnum):
    """What the node is doing."""

    RECOVERY = "recovery"
    RUNNING = "running"
    RELOAD = "reload"
    DRAIN = "drain"


_EDGES = (Phase.RECOVERY, Phase.DRAIN)


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """One kill to be.

    Attributes:
        phase: When the counting begins: with the process, with work under way, with SIGHUP, with SIGTERM.
        call: What the process dies in place of, as its reaper names it; empty: whatever it is doing.
        ordinal: Which of those calls, from 1; of a recovery: modulo how many it has.
    """

    phase: Phase = Phase.RUNNING
    call: str = ""
    ordinal: int = 1


class Reaper(Protocol):
    """Kills a node at a call.

    Attributes:
        name: For the table.
        calls: Every call there is, with how often, at the least, it comes in two seconds of work; 0: only while the
            node starts and stops.
        command: Starts the node; empty: what starts any node.
    """

    name: str
    calls: Mapping[str, int]
    command: Sequence[str]

    def prefix(self, moment: Moment) -> Sequence[str]:
        """Arm before the start; returns what goes in front of the command."""
        ...

    def arm(self, pid: int, moment: Moment) -> None:
        """Arm while the process runs; counting has begun when this returns."""
        ...

    def disarm(self) -> None:
        """Clean up, after the process's end or because the call did not come."""
        ...


@dataclass(frozen=True, slots=True)
class Planned:
    """A moment and who sees to it (None: a plain SIGKILL)."""

    moment: Moment
    reaper: Reaper | None = None


def plan(random: Random, *, at_random: int, at_calls: Mapping[Reaper, int] | None = None) -> list[Planned]:
    """Draw a campaign: every call in every phase as evenly as the counts allow, in random order.

    Args:
        random: Draws ordinals and order.
        at_random: Kills at no particular call.
        at_calls: Kills per reaper.
    """
    drawn = [Planned(Moment()) for _ in range(at_random)]
    for reaper, count in (at_calls or {}).items():
        pairs = [(phase, call) for phase in Phase for call in reaper.calls if reaper.calls[call] or phase in _EDGES]
        random.shuffle(pairs)
        for phase, call in itertools.islice(itertools.cycle(pairs), count):
            ordinal_max = 1 << 30 if phase is Phase.RECOVERY else max(reaper.calls[call], 1)
            moment = Moment(phase=phase, call=call, ordinal=random.randint(1, ordinal_max))
            drawn.append(Planned(moment, reaper))
    random.shuffle(drawn)
    return drawn
