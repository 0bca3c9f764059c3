"""A ledger that also writes the journal that `tests.histories.rules` judges, independently of the ledger."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from tests.histories.journal import Journal
from tests.histories.rules import judge
from tests.simulation.facts import DeadLetter, Place, PromiseBroken, Publish, Stamp, Stored
from tests.simulation.halves import HalfAccount
from tests.simulation.ledger import Ledger
from tests.simulation.waits import Wait


class JournaledLedger(Ledger):
    """See `Ledger`; its journal is complete once `check` has returned."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.journal = Journal()
        self._ends: list[tuple[int, float]] = []
        for (group, _), rules in self.subscriptions.items():
            self.journal.add("group", 0.0, group=group, timeout=rules.timeout)

    def sent(self, publish: Publish) -> None:
        """See `Ledger`."""
        super().sent(publish)
        wanting = [each for each in self.subscriptions.values() if each.wants(publish)]
        self._add(
            "send",
            publish.sent,
            id=publish.uid,
            who=publish.connection,
            topic=publish.topic,
            keys={each.group: each.key_of(publish) or "" for each in wanting},
            due=None if publish.wait is None else [publish.wait.kind, publish.wait.ms],
        )

    def settled(self, uid: int, outcome: str, stamp: Stamp, receipt: tuple[str, int] | None = None) -> None:
        """See `Ledger`."""
        if self.is_gone(uid, stamp):
            outcome, receipt = "unknown", None
        place = None if receipt is None else [self.publishes[uid].topic, *receipt]
        self._add("sent", stamp, id=uid, result=outcome, place=place)
        super().settled(uid, outcome, stamp, receipt)

    def numbered(self, op: str, time: float, **fields: Any) -> None:
        """See `Ledger`."""
        self.journal.add(op, time, **fields)

    def timer_asked(self, uid: int, wait: Wait | None, time: float) -> None:
        """See `Ledger`."""
        super().timer_asked(uid, wait, time)
        self.journal.add("change", time, id=uid, due=None if wait is None else [wait.kind, wait.ms])

    def timer_answered(self, uid: int, outcome: str, *, handle: str, time: float) -> None:
        """See `Ledger`."""
        if not self.damaged_timers:
            self.journal.add("changed", time, id=uid, result=outcome)
        super().timer_answered(uid, outcome, handle=handle, time=time)

    def delivered(
        self,
        group: str,
        place: Place,
        client: str,
        stamp: Stamp,
        *,
        uid: int,
        key: str | None,
        tag: str | None,
        body: bytes,
    ) -> None:
        """See `Ledger`."""
        super().delivered(group, place, client, stamp, uid=uid, key=key, tag=tag, body=body)
        if self.is_gone(uid, stamp):
            return
        self._add(
            "get",
            stamp,
            group=group,
            who=client,
            place=list(self.retries.of(group, place)),
            id=uid,
            asked=stamp.asked,
            asked_t=stamp.time if stamp.asked_time is None else stamp.asked_time,
            late=stamp.late,
            copy=list(place),
        )

    def answered(  # noqa: PLR0917
        self,
        group: str,
        place: Place,
        client: str,
        stamp: Stamp,
        success: bool,
        of: Stamp | None = None,
        named: bool = False,
    ) -> None:
        """See `Ledger`."""
        super().answered(group, place, client, stamp, success, of, named)
        if named and self.is_of_gone(place, of, by_life=stamp.life):
            return
        origin = list(self.retries.of(group, place))
        self._add("ack", stamp, group=group, who=client, place=origin, success=success)

    def confirmed(self, group: str, place: Place, stamp: Stamp, of: Stamp | None = None) -> None:
        """See `Ledger`."""
        super().confirmed(group, place, stamp, of)
        if self.is_of_gone(place, of):
            return
        self._add("acked", stamp, group=group, place=list(self.retries.of(group, place)), copy=list(place))

    def reset(self, group: str, topic: str, to: Mapping[str, int], stamp: Stamp) -> None:
        """See `Ledger`."""
        super().reset(group, topic, to, stamp)
        self._add("reset", stamp, group=group, topic=topic, to=dict(to))

    def ended(self, *, power_lost: bool, time: float, seconds: float | None = None, ready: bool = True) -> None:
        """See `Ledger`."""
        self._ends.append((self.life, time))
        super().ended(power_lost=power_lost, time=time, seconds=seconds, ready=ready)

    def taken(
        self,
        present: Mapping[Place, int],
        retries: Mapping[Place, int],
        *,
        seconds: float,
        failed_at: float | None = None,
    ) -> set[int]:
        """See `Ledger`."""
        places = {tuple(place) for place, uid in self.places.items() if present.get(place) != uid}
        gone = super().taken(present, retries, seconds=seconds, failed_at=failed_at)
        cut = self.cuts[-1]
        self.journal.add("cut", cut.time, ids=sorted(gone), queues=sorted(map(list, cut.queues)))
        for event in self.journal.events:
            if event["op"] == "changed" and event["t"] >= self.cuts[-1].since:
                event["op"] = "undone"
            # What was said of these places is of messages that are no more.
            for name in ("place", "copy"):
                place = event.get(name)
                if place and tuple(place) in places:
                    event[name] = [place[0], f"{place[1]} until {self.life}", place[2]]
        return gone

    def check(self, stored: Iterable[Stored], dead: Iterable[DeadLetter]) -> None:
        """See `Ledger`."""
        records, letters = list(stored), list(dead)
        super().check(records, letters)
        end = self._ends[-1][1] if self._ends else 0.0
        for life, time in self._ends:
            lost = [time - each.time + each.window for each in self.power_losses if each.life == life and each.window]
            self.journal.add("end", time, life=life, acks_lost=max(lost, default=0.0))
        for record in records:
            self.journal.add("stored", end, id=record.uid, place=list(record.place), at=record.physical)
        for letter in letters:
            self.journal.add("dead", end, id=letter.uid, group=letter.group, place=list(letter.origin))
        for place in self.lost:
            self.journal.add("lost", end, place=list(place))
        if self._walls is not None:
            for time, ms in self._walls.history():
                self.journal.add("wall", time, ms=ms)

    def judge(self, halves: HalfAccount, visible: Counter[str]) -> None:
        """Have the history judged by the rules that know nothing of this ledger.

        Raises:
            PromiseBroken: It breaks one.
        """
        self.journal.events.extend(halves.journal.events)
        for name in visible.elements():
            self.journal.add("visible", 0.0, id=name)
        faults = judge(self.journal.ordered())
        if faults:
            raise PromiseBroken(0, f"{len(faults)} faults of the history, first {faults[:3]}")

    def _add(self, op: str, stamp: Stamp, **fields: Any) -> None:
        self.journal.add(op, stamp.time, stamp.sequence, turn=stamp.turn, life=stamp.life, **fields)
