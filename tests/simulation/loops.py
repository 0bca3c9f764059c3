"""Producers of loops and of single messages for later (`sendDelaySync`), with their own account of what was answered.

Every occurrence is delivered once, in order, none early; what was acknowledged comes whole, or up to its cancel, after
which nothing of it comes any more; an add that was not answered is there whole or not at all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from broker.scheduled.recurring.occurrence import GROWING, LOOP, ONCE, Occurrence
from tests.simulation.facts import PromiseBroken
from tests.simulation.lines import Client, Link, Surroundings
from tests.simulation.wire import Reply, producer_codec, producer_idl

TOPIC = "later"
CANCELLED, TOO_LATE, UNKNOWN = 1, 2, 3
"""`cancelOutcome` of an answered cancel."""
PAUSE_SECONDS = 0.4
RECENT = 50


class Came(NamedTuple):
    """An occurrence in the topic: its id, its commit-log offset, and when it was stored."""

    name: str
    physical: int
    stored_ms: int


@dataclass(slots=True)
class LoopAccount:
    """What was asked of one message, and answered.

    Attributes:
        first: Its first, or only, occurrence.
        added: Its add was answered.
        cancel_asked: A cancel was asked for: it may end anywhere.
        ended_at: End of the log when a cancel was answered as in time; None while none was.
        ended_ms: The wall clock then, where the end of the log is not known.
        complete: A cancel was answered as too late: all of it is delivered.
        moved_ms: Moments to which an occurrence may have been moved.
        may_be_gone: Nothing is known of it once it has ended and its log files were deleted.
        open_cancels: How many may have ended it although nobody was answered so.
        added_at, answered_at: When the add was answered, and a cancel was last; -1.0: not at all.
    """

    first: Occurrence
    added: bool = False
    cancel_asked: bool = False
    ended_at: int | None = None
    ended_ms: int | None = None
    complete: bool = False
    moved_ms: list[int] = field(default_factory=list)
    may_be_gone: bool = False
    open_cancels: int = 0
    added_at: float = -1.0
    answered_at: float = -1.0

    def undone(self, since: float) -> None:
        """Note that a power loss took what was not synced: what was answered since that time may hold, or not."""
        if self.added_at >= since:
            self.added = False
        if self.answered_at >= since:
            self.ended_at = self.ended_ms = None
            self.complete = False
            self.open_cancels += 1

    def answered(self, outcome: int, log_end: int | None, wall_ms: int = 0, *, time: float = 0.0) -> None:
        """Note the answer to a cancel, when it came, and where the log ends then, or None for what nobody knows.

        Raises:
            PromiseBroken: 8.
        """
        self.answered_at = time
        self.open_cancels = max(0, self.open_cancels - 1)
        ended = self.ended_at is not None or self.ended_ms is not None
        if outcome == CANCELLED and not self.complete:
            if not ended:
                self.ended_at, self.ended_ms = log_end, wall_ms if log_end is None else None
        elif (outcome == TOO_LATE or (outcome == UNKNOWN and self.may_be_gone)) and not ended:
            self.complete = outcome == TOO_LATE or not self.open_cancels
        elif outcome == UNKNOWN and self.may_be_gone:
            pass
        else:
            raise PromiseBroken(8, f"a cancel of {self.first.id} was answered with {outcome}: {self}")

    def check(self, came: Sequence[Came]) -> None:
        """Hold what came of it against what was answered. Raises PromiseBroken: 1 or 8."""
        whole = walk(self.first)
        names = [each.name for each in came]
        if names != [each.id for each in whole[: len(names)]]:
            raise PromiseBroken(1, f"{self.first.id} came as {names}: twice, out of order, or with a gap")
        if len(came) < len(whole) and (self.complete or not self.cancel_asked) and (self.added or came):
            raise PromiseBroken(1, f"of {self.first.id} {len(came)} of {len(whole)} occurrences came: {self}")
        for each, occurrence in zip(came, whole, strict=False):
            if self.ended_at is not None and each.physical >= self.ended_at:
                raise PromiseBroken(8, f"{each.name} came after the cancel of its loop was answered")
            if self.ended_ms is not None and each.stored_ms > self.ended_ms:
                raise PromiseBroken(8, f"{each.name} came after the cancel of its loop was answered")
            if each.stored_ms < min([occurrence.at_s * 1000, *self.moved_ms]):
                raise PromiseBroken(8, f"{each.name} came at {each.stored_ms}, early: {self}")


def walk(first: Occurrence) -> list[Occurrence]:
    """All occurrences from one on."""
    found = [first]
    while (after := found[-1].next()) is not None:
        found.append(after)
    return found


class LoopProducer(Client):
    """Adds messages of all three types, for soon or the past, and cancels some of them by any id.

    Attributes:
        accounts: What was added, by the first id.
        forgets: The node deletes log files.

    Args:
        around: As for every client.
        number: Draws its randomness, and its uuids.
        log_end: End of the node's log now; None where nobody knows.
        compact: The protocol.
    """

    def __init__(
        self, around: Surroundings, number: int, *, log_end: Callable[[], int | None], compact: bool = False
    ) -> None:
        codec = producer_codec(compact=compact)
        host = f"{'10.3.1' if around.exact else '127.6.0'}.{number}"
        super().__init__(f"loops {number}", host, codec, around, around.producer_address)
        self.accounts: dict[str, LoopAccount] = {}
        self.forgets = False
        self.number = number
        self._log_end = log_end

    def known(self) -> list[LoopAccount]:
        """Those whose add was answered, in their order."""
        return [each for each in self.accounts.values() if each.added]

    @property
    def pending(self) -> int:
        """How many of the latest that were acknowledged have occurrences to come."""
        now_s = self.around.wall_ms() // 1000
        latest = list(self.accounts.values())[-RECENT:]
        return sum(each.added and not each.cancel_asked and walk(each.first)[-1].at_s > now_s for each in latest)

    def ends_ms(self) -> int:
        """The last moment at which an occurrence of any of them may be due."""
        return max((walk(each.first)[-1].at_s * 1000 for each in self.accounts.values()), default=0)

    def on_connected(self) -> None:
        self._work(self.link)

    def _work(self, link: Link | None) -> None:
        if link is None or link is not self.link or self.stopped:
            return
        random = self.around.random
        added = self.known()
        if added and random.random() < 0.25:
            self._cancel(random.choice(added))
        else:
            self._add()
        self.later(PAUSE_SECONDS, self._work, link)

    def _cancel(self, account: LoopAccount) -> None:
        named = self.around.random.choice(walk(account.first))
        account.cancel_asked = True
        account.open_cancels += 1
        self.around.ledger.note(self.around.loop.time(), f"{named.id} is cancelled")
        cancel = producer_idl.DelayMessage(topic=TOPIC, body=b"-", action=2, uniqDelayMsgId=named.id)
        self.call("sendDelaySync", (account, True), delayMessage=cancel, timeout=100)

    def _add(self) -> None:
        first = self._draw()
        account = self.accounts[first.id] = LoopAccount(first, may_be_gone=self.forgets)
        self.around.ledger.note(self.around.loop.time(), f"{first.id} is added")
        add = producer_idl.DelayMessage(
            topic=TOPIC,
            body=b"x" * 50,
            action=1,
            timestamp=first.at_s,
            dmsgtype=first.kind,
            interval=first.interval,
            times=first.times,
            expire=first.expire_s,
            uuid=first.uuid,
        )
        self.call("sendDelaySync", (account, False), delayMessage=add, timeout=100)

    def _draw(self) -> Occurrence:
        random = self.around.random
        at_s = self.around.wall_ms() // 1000 + random.choice((-7, 0, 1, 3))
        uuid = f"{self.number:08x}-0000-0000-0000-{len(self.accounts):012x}"
        kind = random.choice((ONCE, LOOP, LOOP, GROWING))
        if kind == ONCE:
            return Occurrence(at_s, ONCE, at_s + 172_800, 0, 0, 0, 0, uuid)
        interval = 2 if kind == GROWING else random.choice((3, 4))
        return Occurrence(at_s, kind, at_s + 1000, random.choice((1, 3, 4)), 0, interval, 0, uuid)

    def on_reply(self, link: Link, about: tuple[LoopAccount, bool], reply: Reply, stamp: Any) -> None:
        account, cancel = about
        if reply.error is not None:
            raise PromiseBroken(7, f"{reply.method} was answered with {reply.error!r}")
        if reply.value.code != 0:
            self.around.counts[f"loop_code_{reply.value.code}"] += 1
        elif cancel:
            outcome = reply.value.cancelOutcome
            self.around.counts[f"loop_cancel_{outcome}"] += 1
            account.answered(outcome, self._log_end(), self.around.wall_ms(), time=stamp.time)
        else:
            self.around.counts["loop_added"] += 1
            if reply.value.uniqDelayMsgId != account.first.id:
                raise PromiseBroken(7, f"{account.first.id} was answered as {reply.value.uniqDelayMsgId}")
            account.added, account.added_at = True, stamp.time


def check_loops(producers: Iterable[LoopProducer], came: Sequence[Came]) -> None:
    """Hold the topic, in the order of its queues, against the accounts.

    Raises:
        PromiseBroken: 1 or 8.
    """
    by_uuid: dict[str, list[Came]] = {}
    for each in came:
        by_uuid.setdefault(each.name[-36:], []).append(each)
    for producer in producers:
        for account in producer.accounts.values():
            account.check(by_uuid.pop(account.first.uuid, []))
    if by_uuid:
        raise PromiseBroken(1, f"nobody asked for {sorted(by_uuid)}")
