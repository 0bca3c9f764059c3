"""The orderly consumer against a plain model: random sends, answers, members that come and go, kills and stops.

Invariants: never two listeners in one queue; what a queue hands out is its first message that is neither consumed nor
dead-lettered; nothing is skipped; no message fails more often than it may; committed offsets never pass unfinished
work; in the end everything was consumed or is a dead letter, once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hypothesis import settings
from hypothesis import strategies as some
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from broker.consumer import ConsumedMessage, ConsumerOptions, OrderlyConsumer, OrderlyContext, OrderlyStatus
from tests.unit.consumer_world import World

QUEUES, MOST, BATCH = 3, 2, 2
SUSPEND = OrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT


class Orderly(RuleBasedStateMachine):
    """One program whose listeners end when a rule says so."""

    def __init__(self) -> None:
        super().__init__()
        self.world = World(queues=QUEUES, held=True)
        self.members: dict[str, OrderlyConsumer] = {}
        self.sent = [0] * QUEUES
        self.done = [0] * QUEUES
        """Next offset of a queue that is neither consumed nor a dead letter, by the answers given."""
        self.floor = [0] * QUEUES
        """What a kill may fall back to: the offsets that were written."""
        self.fails: dict[tuple[int, int], int] = {}
        self.next_answer: Any = OrderlyStatus.SUCCESS
        self.wrong: list[AssertionError] = []

    def listener(self, batch: Sequence[ConsumedMessage], context: OrderlyContext) -> OrderlyStatus | None:
        """Answer as `_answer` does; what is wrong is kept, for a consumer takes it for a failure of its listener."""
        try:
            return self._answer(batch)
        except AssertionError as error:
            self.wrong.append(error)
            raise

    def _answer(self, batch: Sequence[ConsumedMessage]) -> OrderlyStatus:
        """Check the batch against the model and answer as the rule wants."""
        queue = batch[0].queue_id
        offsets = [message.offset for message in batch]
        assert offsets == list(range(self.done[queue], self.done[queue] + len(batch))), "order"
        for message in batch:
            assert message.reconsume_times == self.fails.get((queue, message.offset), 0), "count"
            assert message.body == f"{queue}-{message.offset}".encode()
        if self.next_answer is OrderlyStatus.SUCCESS:
            self.done[queue] += len(batch)
            return OrderlyStatus.SUCCESS
        left = []
        for offset in offsets:
            if self.fails.get((queue, offset), 0) < MOST:
                left.append(offset)
                self.fails[queue, offset] = self.fails.get((queue, offset), 0) + 1
        # Members of one batch fail together from its first message on, so the exhausted ones are its head.
        self.done[queue] = left[0] if left else offsets[-1] + 1
        return SUSPEND

    @rule(queue=some.integers(0, QUEUES - 1), count=some.integers(1, 3))
    def send(self, queue: int, count: int) -> None:
        """Messages arrive."""
        for _ in range(count):
            self.world.send(f"{queue}-{self.sent[queue]}", queue=queue)
            self.sent[queue] += 1

    @rule(name=some.sampled_from("abc"))
    def join_or_leave(self, name: str) -> None:
        """A member comes, or goes while its listeners may run."""
        member = self.members.get(name)
        if member is None or member.stopped:
            member = self.members[name] = self.world.consumers.orderly(
                "g",
                {"t": "*"},
                self.listener,
                client_id=name,
                options=ConsumerOptions(batch_max=BATCH, reconsume_max=MOST),
            )
            member.start()
        else:
            member.stop()
        self.world.scheduler.run_until_idle()

    @precondition(lambda self: self.world.calls)
    @rule(place=some.integers(0, 10), success=some.booleans())
    def answer(self, place: int, success: bool) -> None:
        """A listener ends."""
        self.next_answer = OrderlyStatus.SUCCESS if success else SUSPEND
        self.world.end(place % len(self.world.calls))

    @rule(seconds=some.sampled_from([0.3, 1.0, 6.0, 25.0]))
    def wait(self, seconds: float) -> None:
        """Time passes: pauses end, locks are renewed, offsets are written."""
        self.world.advance(seconds)

    @rule(orderly=some.booleans())
    def restart(self, orderly: bool) -> None:
        """The program is stopped or killed; what was committed and not written comes again."""
        self.members.clear()
        if orderly:
            self.world.stop()
        else:
            self.world.kill()
        for queue in range(QUEUES):
            committed = self.world.committed(queue) or 0
            dead_lettered = {int(each["DLQ_ORIGIN_OFFSET"]) for each in self.letters(queue)}
            again = [offset for offset in range(committed, self.done[queue]) if offset not in dead_lettered]
            # (A dead letter that a kill left uncommitted is passed over when the queue is read again.)
            assert not (orderly and again), "a stop repeats nothing"
            # Only a head may come again; behind a dead letter that was not committed, the model goes on with it.
            self.done[queue] = again[0] if again else self.done[queue]
            for offset in again:
                # Their counts go with the commit in memory; the file may know them still.
                entry = self.world.consumers.shared.retries._table.get(("g", "t", queue), {}).get(offset)
                self.fails[queue, offset] = 0 if entry is None else entry.times

    def letters(self, queue: int) -> list[dict[str, str]]:
        """Dead letters of a queue."""
        return [each for each in self.world.dead_letters() if each["DLQ_ORIGIN_QUEUE"] == str(queue)]

    @invariant()
    def listeners_got_what_the_model_says(self) -> None:
        """In order, with its failures counted."""
        for error in self.wrong:
            raise error

    @invariant()
    def one_listener_per_queue(self) -> None:
        """Never two of one queue in flight, and each queue with one owner."""
        places = [place for member in self.members.values() for place in member.works]
        assert len(places) == len(set(places))
        assert len(self.world.calls) <= QUEUES
        busy = [
            work for member in self.members.values() for work in member.works.values() if work.busy_since is not None
        ]
        assert len(busy) == len(self.world.calls)

    @invariant()
    def commits_never_pass_unfinished_work(self) -> None:
        """And dead letters are written once."""
        for queue in range(QUEUES):
            assert (self.world.committed(queue) or 0) <= self.done[queue]
            offsets = [each["DLQ_ORIGIN_OFFSET"] for each in self.letters(queue)]
            assert len(offsets) == len(set(offsets))

    def teardown(self) -> None:
        """Let everything succeed: then every message was consumed or is a dead letter."""
        self.next_answer = OrderlyStatus.SUCCESS
        if not any(member.running for member in self.members.values()):
            self.members = {each: member for each, member in self.members.items() if not member.stopped}
            self.join_or_leave("z")
        for _ in range(200):
            while self.world.calls:
                self.world.end()
            self.world.advance(1.0)
            if self.done == self.sent:
                break
        self.listeners_got_what_the_model_says()
        assert self.done == self.sent
        assert [self.world.committed(queue) or 0 for queue in range(QUEUES)] == self.sent


TestOrderly = Orderly.TestCase
TestOrderly.settings = settings(max_examples=40, stateful_step_count=40, deadline=None)
