"""The part of a run over Kafka in which messages wait: timers, delays, loops, their cancels, and transactions.

Judged by what read-committed consumers may see of the target topics, in the moment when its transaction is committed:

1. What was acknowledged comes once: a timer, each occurrence of a loop, a half that was committed; with every add and
   cancel sent again that was not answered, to any node.
5. A half that was rolled back or not decided is not visible; each answered decision is what became of it.
8. Nothing is early. What was answered as cancelled does not come; what was answered as too late has come whole.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from tests.simulation.clients import BIG_BYTES
from tests.simulation.facts import PromiseBroken
from tests.simulation.halves import TOPIC as PAID
from tests.simulation.halves import Checked, HalfAccount, HalfProducer
from tests.simulation.kafka.account import check_publishes
from tests.simulation.kafka.world import NODES, TOPICS, KafkaWorld, Report, uid_of
from tests.simulation.lines import Link, Surroundings
from tests.simulation.loops import TOPIC as LATER
from tests.simulation.loops import UNKNOWN, Came, LoopAccount, LoopProducer, check_loops
from tests.simulation.wire import Reply, producer_idl
from upstream.kafka.link import KafkaRecord

SETTLE_SECONDS = 60.0
CANCEL_MS = 4_000
AGAIN_SHARE = 0.5
ADDS_MAX = 4
TRANSACTION_BYTES_MAX = 5 << 19
"""Of several records, in runs with big messages: a batch and what is added to it last."""


class ResendingProducer(LoopProducer):
    """A producer of delays and loops whose calls are sent again, by itself or another, where they were not answered.

    Attributes:
        unanswered: Shared by all of a run: account, and whether it is a cancel.
    """

    def __init__(
        self, around: Surroundings, number: int, unanswered: list[tuple[LoopAccount, bool]], *, compact: bool
    ) -> None:
        super().__init__(around, number, log_end=_unknown, compact=compact)
        self.unanswered = unanswered
        self.tries: Counter[str] = Counter()

    def _work(self, link: Link | None) -> None:
        if link is not None and link is self.link and not self.stopped and self.unanswered and self.chance(AGAIN_SHARE):
            account, cancel = self.unanswered.pop(self.around.random.randrange(len(self.unanswered)))
            self.around.counts["loop_sent_again"] += 1
            self.send(account, cancel=cancel)
        super()._work(link)

    def send(self, account: LoopAccount, *, cancel: bool) -> None:
        """Send an add or a cancel again."""
        first = account.first
        message = (
            producer_idl.DelayMessage(topic=LATER, body=b"-", action=2, uniqDelayMsgId=first.id)
            if cancel
            else producer_idl.DelayMessage(
                topic=LATER, body=b"x" * 50, action=1, timestamp=first.at_s, dmsgtype=first.kind,
                interval=first.interval, times=first.times, expire=first.expire_s, uuid=first.uuid,
            )
        )  # fmt: skip
        self.call("sendDelaySync", (account, cancel), delayMessage=message, timeout=CANCEL_MS)

    def on_reply(self, link: Link, about: tuple[LoopAccount, bool], reply: Reply, stamp: Any) -> None:
        cancel = about[1]
        if reply.error is None and (reply.value.code != 0 or (cancel and reply.value.cancelOutcome == UNKNOWN)):
            # Its owner has not responded, or the record was not acknowledged: the same call gets the outcome.
            self.around.counts["loop_unknown"] += 1
            self.again(about)
            return
        super().on_reply(link, about, reply, stamp)

    def again(self, about: tuple[LoopAccount, bool]) -> None:
        """Have a call sent again; an add only some times, since one whose end has passed is refused."""
        account, cancel = about
        self.tries[account.first.id] += not cancel
        if cancel or self.tries[account.first.id] < ADDS_MAX:
            self.unanswered.append(about)

    def on_lost(self, link: Link) -> None:
        for about, _ in link.pending.values():
            self.again(about)
        super().on_lost(link)


class SlowHalfProducer(HalfProducer):
    """One of three nodes."""

    pause_seconds = 0.5


class BigHalfProducer(SlowHalfProducer):
    """Whose messages are big, some of them."""

    body_bytes = (50, *BIG_BYTES)


def _unknown() -> None:
    """Where the log ends; nobody knows."""


class WaitingPart:
    """What waits in one run.

    Attributes:
        came: Occurrences in their topic.
        paid: Halves that are visible, by name.
    """

    def __init__(self, world: KafkaWorld) -> None:
        self.world = world
        self.came: list[Came] = []
        self.paid: Counter[str] = Counter()
        self.halves = HalfAccount()
        self.unanswered: list[tuple[LoopAccount, bool]] = []
        self.loops: list[ResendingProducer] = []
        self.halving: list[HalfProducer] = []
        self.checked: list[Checked] = []
        world.kafka.on_counted = self._counted
        if world.way.big:
            world.kafka.transaction_bytes_max = TRANSACTION_BYTES_MAX
        # Six members that do little: a run of them would be polls for the most part.
        world.kafka.poll_seconds = 0.05

    def add_clients(self, name: str) -> None:
        """Connect producers to a node."""
        number = 100 + NODES.index(name)
        around = [self.world.surroundings(name, number + 10 * each) for each in range(3)]
        self.loops.append(ResendingProducer(around[0], number, self.unanswered, compact=number % 2 == 0))
        halving = BigHalfProducer if self.world.way.big else SlowHalfProducer
        self.halving.append(halving(around[1], number, self.halves))
        self.checked.append(Checked(around[2], number, self.halves))
        for client in (self.loops[-1], self.halving[-1], self.checked[-1]):
            client.connect()

    def _counted(self, record: KafkaRecord) -> None:
        """Note a record that read-committed consumers may see from now on."""
        now_ms = self.world.clock.wall_ms()
        if record.topic == LATER:
            self.came.append(Came((record.key or b"").decode(), 0, now_ms))
        elif record.topic == PAID:
            self.paid[(dict(record.headers)["name"] or b"").decode()] += 1
        elif record.topic in TOPICS:
            publish = self.world.history.publishes[uid_of(record)]
            wait = publish.wait
            if wait is None:
                return
            sent_ms = self.world.clock.wall_ms() - round((self.world.loop.time() - publish.sent.time) * 1000)
            due_ms = wait.ms if wait.kind == "at" else sent_ms + wait.ms
            if now_ms + 1 < due_ms:
                raise PromiseBroken(8, f"message {publish.uid} is visible {due_ms - now_ms} ms early: {wait}")
            self.world.report.events["waited"] += 1

    @property
    def is_done(self) -> bool:
        """Whether all that is to come has come."""
        ends_ms = max(each.ends_ms() for each in self.loops)
        committed = [name for name in self.halves.stored if self.halves.fates[name] == "commit"]
        return (
            self.world.clock.wall_ms() > ends_ms + 2_000
            and not self.unanswered
            and not any(each.link is None or each.link.pending for each in self.loops)
            and all(name in self.paid for name in committed)
            and not self.world.busy
            and self.pending == self.undecided
        )

    @property
    def pending(self) -> int:
        """Messages that wait, by the word of their owners."""
        return sum(sum(owner.cache.counts.values()) for owner in self._owners())

    @property
    def undecided(self) -> int:
        """Halves among them."""
        return sum(owner.cache.undecided.total() + owner.cache.discarded for owner in self._owners())

    def _owners(self) -> Sequence[Any]:
        nodes = [slot.node for slot in self.world.slots.values() if slot.node is not None]
        return [
            owner
            for node in nodes
            for waiting in node.parts.kafka.waiting.values()
            for owner in waiting.owners.values()
        ]

    def settle(self) -> None:
        """Let all come to its end. Raises PromiseBroken: it does not."""
        self.world.restore()
        for half in self.halving:
            half.stopped = True
        for checked in self.checked:
            checked.perfect = True
        for loop in self.loops:
            # It goes on with what was not answered.
            loop._add = lambda: None  # type: ignore[method-assign]
            loop._cancel = lambda account: None  # type: ignore[method-assign]
        if not self.world.run(seconds=SETTLE_SECONDS, until=lambda: self.is_done):
            lost = [
                name for name in self.halves.stored if self.halves.fates[name] == "commit" and name not in self.paid
            ]
            raise PromiseBroken(
                1,
                f"after {SETTLE_SECONDS} s {self.pending} messages wait, {self.undecided} of them halves; "
                f"{len(self.unanswered)} calls are not answered; committed and not visible: {lost[:5]}",
            )
        self.world.run(seconds=5)

    def check(self) -> Report:
        """Hold what came against what was asked and answered. Raises PromiseBroken."""
        world = self.world
        stored: dict[int, list[Any]] = {}
        for topic in TOPICS:
            for partition in world.kafka.topics[topic]:
                for record in partition.records.values():
                    stored.setdefault(uid_of(record), []).append(record)
        check_publishes(world.history, stored)
        check_loops(self.loops, self.came)
        self.halves.check(self.paid)
        events = world.report.events
        events["occurrences"], events["halves_visible"] = len(self.came), len(self.paid)
        world.report.published, world.report.seconds = len(stored), world.loop.time() - 1_000
        world.report.turns = world.loop.turns
        return world.report
