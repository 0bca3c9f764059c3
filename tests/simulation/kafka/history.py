"""What happens in a run over Kafka, in the one order of the simulated network, as the account is given it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from pyddmq.testing.network import NetworkMark
from tests.simulation.facts import Place, PromiseBroken, Publish, Stamp

_OF_PARTITIONS = ("owned", "committed", "refused")


class Event(NamedTuple):
    """One thing that happened.

    Attributes:
        sequence: Its place in the order of all.
        time: Virtual seconds.
        kind: `handed_out`, `succeeded`, `failed`, `unknown` (an answer for a partition that the node has not),
            `confirmed`, `committed`, `refused`, `owned`, `dead`, `began`, `ended`.
        node: Where; empty: at the cluster.
        group: Whose.
        place: Of which partition, with the offset.
        detail: What else is known.
    """

    sequence: int
    time: float
    kind: str
    node: str
    group: str
    place: tuple[str, int, int]
    detail: Any = None


@dataclass(slots=True)
class Trouble:
    """What keeps commits from being made: its kind, the node (empty: all), from when to when."""

    kind: str
    node: str
    began: float
    ended: float = float("inf")


@dataclass(slots=True)
class History:
    """All events of a run, and what was published.

    Attributes:
        mark: Takes the next place in the order.
        publishes: By number.
        troubles: By which answers may be lost.
    """

    mark: Callable[[], NetworkMark]
    publishes: dict[int, Publish] = field(default_factory=dict)
    events: list[Event] = field(default_factory=list)
    troubles: list[Trouble] = field(default_factory=list)

    def note(self, kind: str, node: str = "", group: str = "", place: Any = ("", -1, -1), detail: Any = None) -> None:
        """Note something that happens now."""
        mark = self.mark()
        self.events.append(Event(mark.sequence, mark.time, kind, node, group, tuple(place), detail))

    def began(self, kind: str, node: str = "") -> Trouble:
        """Note that something is wrong from now on."""
        self.note("began", node, detail=kind)
        self.troubles.append(Trouble(kind, node, self.mark().time))
        return self.troubles[-1]

    def ended(self, trouble: Trouble, *, after: float = 0.0) -> None:
        """Note that it is not any more, or will not be so many seconds from now."""
        self.note("ended", trouble.node, detail=trouble.kind)
        trouble.ended = self.mark().time + after

    def at(  # noqa: PLR0917 - an event has so many
        self, stamp: Stamp, kind: str, node: str, group: str, place: Place, detail: Any = None
    ) -> None:
        """Note something that happened at a stamp."""
        where = (place.topic, int(place.qid.rpartition("_")[2]), place.offset)
        self.events.append(Event(stamp.sequence, stamp.time, kind, node, group, where, detail))

    def text(self, of: Event, last: int = 80) -> str:
        """Return what led to an event, for people: all of its message, and of its group's partition what matters."""
        found = [
            f"  {each.time:10.3f} {each.kind:10} {each.node:3} {each.group:8} {each.place} {each.detail or ''}"
            for each in sorted(self.events)
            if each.sequence <= of.sequence
            and (
                each.kind in ("began", "ended")
                or (
                    each.group == of.group
                    and (each.place == of.place or (each.kind in _OF_PARTITIONS and each.place[:2] == of.place[:2]))
                )
            )
        ]
        return "\n".join(found[-last:])


class Ledger:
    """What one node's clients enter: as `tests.simulation.ledger.Ledger` is called, for one node of several."""

    def __init__(self, history: History, node: str, has: Callable[[str, str, int], bool]) -> None:
        """Set up.

        Args:
            history: Of all nodes.
            node: Its name.
            has: Whether it has a partition of a group in hand, by its own word.
        """
        self._history = history
        self._node = node
        self._has = has
        self.publishes = history.publishes
        self.life = 0

    def sent(self, publish: Publish) -> None:
        """Note a publish that is about to be sent."""
        self.publishes[publish.uid] = publish

    def settled(self, uid: int, outcome: str, stamp: Stamp, receipt: tuple[str, int] | None = None) -> None:
        """Note what became of it."""
        publish = self.publishes[uid]
        publish.outcome, publish.settled, publish.receipt = outcome, stamp, receipt

    def note(self, time: float, what: str) -> None:
        """Take a line for people; the account has what it needs."""

    def timer_made(self, uid: int, handle: str) -> None:
        """Take the name of a message that waits; none of these is cancelled."""

    def delivered(
        self, group: str, place: Place, host: str, stamp: Stamp, *, uid: int, key: str, tag: str, body: bytes
    ) -> None:
        """Note a hand-out. Raises PromiseBroken: 1: it is not what was published."""
        publish = self.publishes.get(uid)
        if publish is None or publish.body != body or (key or "") != publish.key:
            raise PromiseBroken(1, f"{place} came to {group} as {key!r} {body!r}, published was {publish}")
        self._history.at(stamp, "handed_out", self._node, group, place, uid)

    def answered(  # noqa: PLR0917 - as `tests.simulation.ledger.Ledger` has it
        self, group: str, place: Place, host: str, stamp: Stamp, success: bool, of: Stamp, names: bool
    ) -> None:
        """Note an answer that has arrived at the node: whether it has the partition, it is told now."""
        has = self._has(group, place.topic, int(place.qid.rpartition("_")[2]))
        kind = ("succeeded" if success else "failed") if has else "unknown" if success else "unknown failure"
        self._history.at(stamp, kind, self._node, group, place, of.sequence)

    def confirmed(self, group: str, place: Place, stamp: Stamp, of: Stamp) -> None:
        """Note that the call which carried a success was answered."""
        self._history.at(stamp, "confirmed", self._node, group, place)
