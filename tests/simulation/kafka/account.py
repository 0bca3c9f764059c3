"""The checker of a run over Kafka: it goes through the whole history and holds it against docs/promises.md.

Everything is judged in the order in which processes and cluster saw it. Which partition is whose, and what is
committed, is asked of the cluster itself.

1. A publish that was answered as stored is in its topic once, one that was refused never.
2. A message whose success was answered comes again only where that was not committed, and not committed in time for a
   reason: within the interval and the ways of a commit its node went, or stood still, or lost the cluster, or the group
   was just shared out. With `ackFlush: sync` never. What was committed never comes again.
3. Of one key a message is handed out when all before it are finished; after a repeat the key goes on from there. Two
   of a key are never out at a node, and with `takeover: strict` not at two.
4. Nobody hands out what is another's by the coordinator's word.
6. In the end each record that may be read is finished in every group: by a success or a dead letter.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.simulation.facts import PromiseBroken
from tests.simulation.kafka.history import Event, History, Trouble
from upstream.kafka.commits.metadata import decode

AWAY = "it was away"
"""The trouble of a node that is dead."""

Where = tuple[str, int]
Spot = tuple[str, int, int]

COMMIT_SECONDS = 0.1
WAYS_SECONDS = 0.05
"""What a commit is under way, with what may be under way before it."""
AGAIN_SECONDS = 0.3
"""A commit that was refused while the group is shared out is tried again so much later."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """How the groups of a run are configured.

    Attributes:
        ordered: Those with an order by key.
        sync: `ackFlush: sync`.
        strict: `takeover: strict`.
        timeout: Of a delivery, in seconds.
    """

    ordered: frozenset[str]
    sync: bool
    strict: bool
    timeout: float


@dataclass(slots=True)
class _Out:
    """A hand-out that nobody has answered."""

    uid: int
    node: str
    time: float


@dataclass(slots=True)
class _Kept:
    """What is known of one message in one group.

    Attributes:
        finished: When it was finished last, be it by an answer that may be lost again.
        confirmed: The answer that was told to count: when it had arrived, and where.
        committed: By the cluster.
        told: The node that got a success while it did not have the partition.
    """

    finished: float | None = None
    answered: tuple[float, str] | None = None
    confirmed: tuple[float, str] | None = None
    committed: bool = False
    told: str = ""


@dataclass(slots=True)
class Account:
    """One run's; `judge` raises PromiseBroken."""

    history: History
    rules: Rules
    uid_at: Mapping[Spot, int]
    counts: Counter[str] = field(default_factory=Counter)
    _kept: dict[tuple[str, Spot], _Kept] = field(default_factory=lambda: defaultdict(_Kept))
    _out: dict[tuple[str, Where, str], dict[str, _Out]] = field(default_factory=lambda: defaultdict(dict))
    _owner: dict[tuple[str, Where], str] = field(default_factory=dict)
    _order: dict[tuple[Where, str], list[Spot]] = field(default_factory=dict)
    _in: dict[Where, list[Spot]] = field(default_factory=lambda: defaultdict(list))
    _troubles: list[Trouble] = field(default_factory=list)

    def judge(self) -> None:
        """Go through it."""
        for spot in sorted(self.uid_at):
            key = self.history.publishes[self.uid_at[spot]].key
            self._in[spot[:2]].append(spot)
            if key:
                self._order.setdefault((spot[:2], key), []).append(spot)
        events = sorted(self.history.events, key=lambda each: each.sequence)
        refused = [
            Trouble("a refusal", each.node, each.time - AGAIN_SECONDS, each.time + AGAIN_SECONDS)
            for each in events
            if each.kind == "refused"
        ]
        self._troubles = self.history.troubles + refused
        for event in events:
            try:
                getattr(self, f"_on_{event.kind}", lambda _: None)(event)
            except PromiseBroken as broken:
                text = str(broken).partition("broken: ")[2]
                raise PromiseBroken(broken.promise, f"{text}\n{self.history.text(event)}") from None

    def unfinished(self, group: str, spots: list[Spot]) -> list[Spot]:
        """Return which of some messages nobody has finished."""
        return [spot for spot in spots if self._kept[group, spot].finished is None]

    # Events

    def _on_owned(self, event: Event) -> None:
        where = event.group, event.place[:2]
        if self._owner.get(where, "") == event.node:
            return
        for (group, place, _), out in self._out.items():
            if (group, place) == where:
                # What it has out it had as an owner before; should it be the next one, too, that is another term.
                out.update({f"{node} before": out.pop(node) for node in list(out) if not node.endswith(" before")})
        if event.node:
            self._owner[where] = event.node
        else:
            self._owner.pop(where, None)

    def _on_began(self, event: Event) -> None:
        if event.detail == AWAY:
            # The coordinator does not know it yet; who is started in its place has nothing of it.
            for where in [where for where, node in self._owner.items() if node == event.node]:
                self._owner[where] = f"{event.node}, which is dead"

    def _on_handed_out(self, event: Event) -> None:
        uid = self.uid_at.get(event.place)
        if uid is None or uid != event.detail:
            raise PromiseBroken(1, f"{event} is of what is not there")
        owner = self._owner.get((event.group, event.place[:2]))
        if owner not in (None, event.node):
            raise PromiseBroken(3, f"{event} while {owner} has the partition")
        kept = self._kept[event.group, event.place]
        if kept.finished is not None:
            self._judge_repeat(event, kept)
        self.counts["handed_out"] += 1
        if event.group in self.rules.ordered and (key := self.history.publishes[uid].key):
            self._judge_order(event, key)
            self._judge_out(event, key)

    def _judge_repeat(self, event: Event, kept: _Kept) -> None:
        if kept.committed:
            raise PromiseBroken(2, f"{event} again, and its end was committed")
        if kept.confirmed is not None:
            self.counts["again"] += 1
            at, node = kept.confirmed
            if self.rules.sync:
                raise PromiseBroken(2, f"{event} again, answered at {node} {at:.3f}, with ackFlush: sync")
            reason = self._reason(at, node, event.time)
            if reason is None:
                raise PromiseBroken(2, f"{event} again, answered at {node} {at:.3f}, and nothing was wrong")
            self.counts[f"again after {reason}"] += 1
        kept.finished = kept.answered = kept.confirmed = None

    def _reason(self, at: float, node: str, now: float) -> str | None:
        """Return why what was answered at a moment was not committed; None: it should have been."""
        for each in self._troubles:
            by = min(now, at + COMMIT_SECONDS + WAYS_SECONDS)
            if each.node in ("", node) and each.began <= by and each.ended >= at:
                return each.kind
        return None

    def _judge_order(self, event: Event, key: str) -> None:
        spots = self._order[event.place[:2], key]
        for spot in spots[: spots.index(event.place)]:
            kept = self._kept[event.group, spot]
            if kept.finished is None and kept.told == event.node:
                # It kept the answer until it had the partition, and the next message is out before its reply.
                kept.finished = event.time
            if kept.finished is None:
                raise PromiseBroken(3, f"{event} before {spot} of its key {key} is finished")

    def _judge_out(self, event: Event, key: str) -> None:
        out = self._out[event.group, event.place[:2], key]
        for node, each in out.items():
            over = each.time + self.rules.timeout - 0.001 <= event.time
            if not over and (node == event.node or self.rules.strict):
                raise PromiseBroken(3, f"{event} while {each} of its key {key} is out")
        out[event.node] = _Out(event.detail, event.node, event.time)

    def _on_succeeded(self, event: Event) -> None:
        self._answered(event, success=True)

    def _on_failed(self, event: Event) -> None:
        self._answered(event, success=False)

    def _answered(self, event: Event, *, success: bool) -> None:
        uid = self.uid_at.get(event.place)
        if uid is None:
            return
        out = self._out[event.group, event.place[:2], self.history.publishes[uid].key]
        for node in (event.node, f"{event.node} before"):
            if (mine := out.get(node)) is not None and mine.uid == uid and mine.time <= event.time:
                del out[node]
        if not success:
            return
        kept = self._kept[event.group, event.place]
        kept.finished = event.time
        kept.answered = (event.time, event.node)

    def _on_unknown(self, event: Event) -> None:
        kept = self._kept[event.group, event.place]
        if kept.answered is not None and kept.answered[1] == event.node:
            # Sent again to who has the partition no more: a call that is answered now says nothing of the first.
            kept.answered = None
        kept.told = event.node

    def _on_confirmed(self, event: Event) -> None:
        kept = self._kept[event.group, event.place]
        if kept.told == event.node and kept.finished is None:
            # Who had the partition no more has it again, and kept the answer until then: it counts.
            if self._owner.get((event.group, event.place[:2])) == event.node:
                kept.finished = event.time
            kept.told = ""
        if kept.answered is not None and kept.answered[1] == event.node:
            kept.confirmed = kept.answered

    def _on_committed(self, event: Event) -> None:
        offset, text = event.place[2], event.detail
        known = decode(text, offset)
        where = event.place[:2]
        for spot in self._in[where]:
            if spot[2] < offset or any(start <= spot[2] < end for start, end in known.ranges):
                kept = self._kept[event.group, spot]
                kept.committed = True
                kept.finished = event.time if kept.finished is None else kept.finished

    def _on_dead(self, event: Event) -> None:
        self.counts["dead"] += 1
        self._kept[event.group, event.place].finished = event.time


def check_publishes(history: History, stored: Mapping[int, list[Any]]) -> None:
    """Hold answers to publishes against what is in the topics. Raises PromiseBroken: 1."""
    for uid, publish in history.publishes.items():
        count = len(stored.get(uid, []))
        if publish.outcome == "stored" and count != 1:
            raise PromiseBroken(1, f"message {uid} was answered as stored and is there {count} times")
        if publish.outcome == "refused" and count:
            raise PromiseBroken(1, f"message {uid} was refused and is there")
        if count > 1:
            raise PromiseBroken(1, f"message {uid} is there {count} times")
