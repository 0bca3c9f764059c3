"""Dead letters that Kafka has not acknowledged yet when the partition, or another one of the topic, moves."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from actions.registry import BUILT_IN, Registry
from pyddmq.actions import Action, Job, Status
from pyddmq.testing import VirtualClock, VirtualLoop
from tests.contract.grounds import ClassicKafkaGround, KafkaGround
from tests.fakes.virtual_threads import VirtualThreads
from tests.unit.upstream_world import Client
from upstream.calls.node_calls import NodeCalls
from upstream.kafka.dead_letters import AGAIN_SECONDS
from upstream.kafka.link import KafkaFailure, Produced
from upstream.kafka.partitions import MemberSettings
from upstream.operate.heads import HeadRefused, dead_letter, skip

KEYED = {"topic": "t", "orderKey": "KEY", "retryIntervals": [], "timeout": 60_000, "maxPullBatchSize": 8}
SETTINGS = MemberSettings(session_seconds=10, revoke_seconds=2)
REFUSED = KafkaFailure("_MSG_TIMED_OUT", "Local: Message timed out")


class Mailbag:
    """A producer whose sends lie until they are let go."""

    def __init__(self) -> None:
        self.sent: list[tuple[bytes | None, Produced]] = []

    def produce(  # noqa: PLR0917 - as `upstream.kafka.link.KafkaProducer` has it
        self,
        topic: str,
        partition: int | None,
        key: bytes | None,
        value: bytes | None,
        headers: Sequence[tuple[str, bytes | None]],
        done: Produced,
    ) -> None:
        """Keep it."""
        self.sent.append((value, done))

    def withdraw(self, done: Produced) -> bool:
        """All have left."""
        return False

    def let_go(self, failure: KafkaFailure | None = None) -> list[bytes | None]:
        """Acknowledge, or refuse, all that lie; return their values."""
        sent, self.sent = self.sent, []
        for _, done in sent:
            done(failure, 0, 0)
        return [value for value, _ in sent]


@pytest.fixture(params=[KafkaGround, ClassicKafkaGround], ids=["consumer", "classic"])
def kind(request: pytest.FixtureRequest) -> type[KafkaGround]:
    """Return a simulated Kafka of either protocol."""
    made: type[KafkaGround] = request.param
    return made


def _node(kind: type[KafkaGround]) -> tuple[KafkaGround, Mailbag]:
    ground, mailbag = kind(KEYED, queues=2, settings=SETTINGS), Mailbag()
    vars(vars(ground.member)["_dead_letters"])["_producer"] = mailbag
    return ground, mailbag


def test_letter_of_an_earlier_term_finishes_nothing_of_the_next(kind: type[KafkaGround]) -> None:
    """The message is at work again by then: it is committed when that has ended, and does not come after it."""
    (ground, mailbag), client = _node(kind), Client()
    ground.put("bad", key="k")
    [place] = ground.take(client)
    ground.ack(client, place, fail=True)
    assert len(mailbag.sent) == 1
    [member] = ground.client.members
    ground.cluster().expel(member)
    ground.advance(15)
    assert list(ground.take(client)) == [place], "it came back, and its message with it"
    assert mailbag.let_go() == [b"bad"]
    ground.advance(1)
    assert ground.committed() == place[1], "it is out"
    ground.ack(client, place, fail=True)
    assert mailbag.let_go() == [b"bad"]
    ground.advance(1)
    assert (ground.committed() or 0) > place[1]
    assert ground.take(client) == {}


def test_letter_that_is_refused_while_another_partition_moves_is_sent_again(kind: type[KafkaGround]) -> None:
    """The topic is read anew without the one that went; the key of the message would wait for ever."""
    (ground, mailbag), client = _node(kind), Client()
    for queue in range(2):
        ground.put(f"bad {queue}", key=f"k{queue}", queue=queue)
        ground.put(f"behind {queue}", key=f"k{queue}", queue=queue)
    taken = ground.take(client)
    ground.ack(client, *taken, fail=True)
    kept = 1 - ground.revoke()
    assert len(mailbag.let_go(REFUSED)) == 2
    ground.advance(AGAIN_SECONDS)
    assert mailbag.let_go() == [b"bad %d" % kept], "the other one is decided by who has it now"
    ground.advance(1)
    assert list(ground.take(client).values()) == [b"behind %d" % kept]


class KafkaCalls(KafkaGround):
    """A node whose actions run in threads of a virtual loop, each call for as long as `thread_seconds` says."""

    def open(self) -> None:
        """Start the node."""
        self.loop, self.thread_seconds = VirtualLoop(), 0.0
        self.clock: Any = VirtualClock(self.loop)
        self.scheduler: Any = self.loop
        threads = VirtualThreads(self.loop, lambda: self.thread_seconds)
        self.calls = NodeCalls(clock=self.clock, scheduler=self.loop, tasks=self.loop, threads=threads, calls_max=8)
        super().open()

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        self.loop.run(lambda: False, seconds=seconds)


def test_call_of_an_earlier_term_finishes_nothing_of_the_next() -> None:
    """A success that comes when the next term has the message in a call of its own is not that call's."""
    seen: list[Job] = []

    class Work(Action):
        may_be_last = True
        blocking = True

        def act(self, job: Job) -> Status:
            seen.append(job)
            return Status.FINISH

    subscription = {**KEYED, "actions": ["Async", "Work"]}
    ground = KafkaCalls(subscription, queues=1, settings=SETTINGS, registry=Registry({**BUILT_IN, "Work": Work}))
    ground.thread_seconds = 30.0
    ground.put("slow", key="k")
    ground.thread_seconds = 60.0
    [member] = ground.client.members
    ground.cluster().expel(member)
    ground.advance(20)
    assert len(seen) == 2, "it came back, and is called again"
    offset = ground.group_queue().tracker.watermark
    ground.advance(20)
    assert ground.committed() == offset, "the first call has ended, and the second is under way"
    ground.advance(60)
    assert (ground.committed() or 0) > offset


def test_answer_of_an_earlier_term_finishes_nothing_of_the_next(kind: type[KafkaGround]) -> None:
    """Likewise of an action that keeps its messages, as the sinks of files do."""
    kept: list[Job] = []

    class Work(Action):
        may_be_last = True

        def act(self, job: Job) -> Status:
            kept.append(job)
            return Status.ASYNCHRONIZED

    subscription = {**KEYED, "actions": ["Async", "Work"]}
    ground = kind(subscription, queues=1, settings=SETTINGS, registry=Registry({**BUILT_IN, "Work": Work}))
    ground.put("slow", key="k")
    ground.advance(1)
    [member] = ground.client.members
    ground.cluster().expel(member)
    ground.advance(20)
    earlier, present = kept
    offset = ground.group_queue().tracker.watermark
    assert not earlier.answer(Status.FINISH)
    ground.advance(1)
    assert ground.committed() == offset, "the present one is under way"
    assert present.answer(Status.FINISH)
    ground.advance(1)
    assert (ground.committed() or 0) > offset


TOO_LARGE = KafkaFailure("MSG_SIZE_TOO_LARGE", "Broker: Message size too large")


@pytest.mark.parametrize("moves", [False, True], ids=["", "after another partition moved"])
def test_operator_ends_a_message_whose_letter_kafka_refuses(moves: bool, kind: type[KafkaGround]) -> None:
    """It is a finding, tried ever less often, and skipped on demand, in whichever generation: the key goes on."""
    (ground, mailbag), client = _node(kind), Client()
    for queue in range(2):
        ground.put(f"bad {queue}", key=f"k{queue}", queue=queue)
        ground.put(f"behind {queue}", key=f"k{queue}", queue=queue)
    taken = ground.take(client)
    ground.ack(client, *taken, fail=True)
    kept = 0
    if moves:
        kept = 1 - ground.revoke()
    mailbag.let_go(TOO_LARGE)
    tries = 0
    for _ in range(200):
        ground.advance(1)
        tries += len(mailbag.let_go(TOO_LARGE))
    assert tries < 25
    assert ground.group.stats().topics[0].dead_letters_refused == (1 if moves else 2)
    [offset] = [place[1] for place in taken if place[0].endswith(str(kept))]
    head = ground.head(ground.group_queue(kept).live[offset])
    skip(head, force=False, progress=ground.progress)
    ground.advance(1)
    assert list(ground.take(client).values()) == [b"behind %d" % kept]
    assert ground.group_queue(kept).tracker.is_finished(offset)
    mailbag.let_go()
    ground.advance(60)
    assert mailbag.sent == [] or moves is False


def test_operator_who_wants_the_letter_that_is_refused_takes_no_try_from_it(kind: type[KafkaGround]) -> None:
    """In the generation that began it, and in the next one, it is on its way already."""
    (ground, mailbag), client = _node(kind), Client()
    for queue in range(2):
        ground.put(f"bad {queue}", key=f"k{queue}", queue=queue)
        ground.put(f"behind {queue}", key=f"k{queue}", queue=queue)
    taken = ground.take(client)
    ground.ack(client, *taken, fail=True)
    kept = 1 - ground.revoke()
    mailbag.let_go(TOO_LARGE)
    [offset] = [place[1] for place in taken if place[0].endswith(str(kept))]
    head = ground.head(ground.group_queue(kept).live[offset])
    with pytest.raises(HeadRefused, match="already being moved to the dead letters"):
        dead_letter(head, force=False, who="10.9.9.9")
    ground.advance(AGAIN_SECONDS)
    assert mailbag.let_go() == [b"bad %d" % kept]
    ground.advance(1)
    assert list(ground.take(client).values()) == [b"behind %d" % kept]


def test_attempt_of_an_earlier_term_leaves_the_refused_letter_of_the_next(kind: type[KafkaGround]) -> None:
    """The partition is lost and comes back while the letter waits: it can be skipped between tries."""
    (ground, mailbag), client = _node(kind), Client()
    ground.put("bad", key="k", queue=0)
    ground.ack(client, *ground.take(client), fail=True)
    for _ in range(100):
        ground.advance(1)
        mailbag.let_go(TOO_LARGE)
    assert ground.group.stats().topics[0].dead_letters_refused == 1
    [member] = ground.client.members
    ground.cluster().expel(member)
    ground.advance(20)
    ground.ack(client, *ground.take(client), fail=True)
    mailbag.let_go(TOO_LARGE)
    for _ in range(100):
        assert ground.group.stats().topics[0].dead_letters_refused == 1
        ground.advance(1)
        mailbag.let_go(TOO_LARGE)
