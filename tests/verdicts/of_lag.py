"""Situations of a consumer group, each with the verdict on its lag that they must get.

Each is a generator: up to its `yield` it brings the situation about, and it yields the words that must be in the
evidence; afterwards it ends the situation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from lag.rules.statuses import BY_NAME
from proxy.operate.changes.groups import PauseBody
from proxy.operate.changes.offsets import ResetBody
from proxy.operate.changes.topics import DeletionBody
from pyddmq.actions import Action, Failed, Job, Status
from tests.fakes.http import serve_http
from tests.simulation.loops import TOPIC as LATER
from tests.simulation.operator import change
from tests.simulation.test_queue_samples import one_queue
from tests.simulation.ward import SEGMENT_BYTES, Ward
from tests.simulation.wire import consumer_idl
from tests.unit.actions.sinks.memory_hdfs import NameNode

STOP_SECONDS = 200.0
"""Longer than the rules wait until they call something stopped."""
WINDOW_SECONDS = 320.0
"""Within which the rules have forgotten what a queue was like before."""

Staging = Iterator[tuple[str, ...]]


@dataclass(frozen=True, kw_only=True)
class Situation:
    """A situation of the group `by-key` on one queue.

    Attributes:
        kind: Kind of the finding that must have status and cause; None: nothing may be found.
        status: The status that its queue must have.
        cause: The cause that must be named.
        run: Brings it about, yields words of the evidence, and ends it.
        also: Kinds of findings that must be there besides.
        by_key: Settings of the subscription.
        node: Settings of the node.
        over_seconds: How long after its end it may show.
    """

    kind: str | None
    status: str
    cause: str
    run: Callable[[Ward], Staging]
    also: tuple[str, ...] = ()
    by_key: dict[str, Any] = field(default_factory=dict)
    node: dict[str, Any] = field(default_factory=dict)
    over_seconds: float = 100.0

    @property
    def level(self) -> str:
        """The level of the finding and of the group."""
        return "WARN" if self.status == "PAUSED" else self.lag_level

    @property
    def lag_level(self) -> str:
        """The level of the queue."""
        return BY_NAME[self.status].level.name

    def prepare(self, wanted: dict[str, Any]) -> None:
        """Configure the node."""
        one_queue(wanted, **self.by_key)
        wanted["node"].update(self.node)
        wanted["lag"] = {"webhook": "http://127.0.0.1:1/lag"}


SITUATIONS: dict[str, Situation] = {}


def situation(
    kind: str | None,
    status: str,
    cause: str,
    *also: str,
    over_seconds: float = 100.0,
    node: Any = None,
    **by_key: Any,
) -> Callable[[Callable[[Ward], Staging]], Callable[[Ward], Staging]]:
    """Enter a situation into the table."""

    def enter(run: Callable[[Ward], Staging]) -> Callable[[Ward], Staging]:
        SITUATIONS[run.__name__] = Situation(
            kind=kind,
            status=status,
            cause=cause,
            run=run,
            also=also,
            by_key=by_key,
            node=node or {},
            over_seconds=over_seconds,
        )
        return run

    return enter


def send(ward: Ward, count: int) -> None:
    """Publish messages with different keys."""
    for number in range(count):
        ward.send("orders", f"k{number}")


def work(ward: Ward, seconds: int, *, sent: int, done: int) -> None:
    """Let a producer and a consumer work at these rates per second; the consumer has a message out at all times."""
    for _ in range(seconds):
        send(ward, sent)
        places = ward.pull(linger_ms=1, count=done) if done else []
        ward.run(1)
        for place in places:
            ward.answer(place, success=True)


def fall_behind(ward: Ward) -> None:
    """Let the group finish some messages, and then no more, for longer than the rules wait."""
    send(ward, 5)
    ward.finish()
    send(ward, 20)
    ward.run(STOP_SECONDS)


# Consumers.


@situation("no_puller", "NOT_CONSUMED", "no_consumer")
def nobody_reads(ward: Ward) -> Staging:
    """Messages, and no client ever."""
    send(ward, 20)
    ward.run(STOP_SECONDS)
    yield ("20 messages",)
    ward.finish()


@situation("no_puller", "STOP", "no_consumer")
def consumers_went(ward: Ward) -> Staging:
    """They worked, and then no client pulls any more."""
    fall_behind(ward)
    yield ("20 messages",)
    ward.finish()


@situation("no_puller", "STOP", "no_consumer")
def node_restarted_while_nobody_consumes(ward: Ward) -> Staging:
    """After a restart the group counts as one that read before, and the window does not begin anew."""
    fall_behind(ward)
    ward.restart(kill=True)
    yield ("20 messages",)
    ward.finish()


@situation("no_puller", "STOP", "no_consumer", timeout=3_600_000)
def client_and_node_went_for_long(ward: Ward) -> Staging:
    """A client has read messages and finished none; it goes, and the node starts again after twenty minutes."""
    send(ward, 20)
    assert ward.pull()
    ward.run(30)
    ward.world.kill()
    ward.run(1_200)
    ward.start()
    ward.run(STOP_SECONDS)
    yield ("20 messages",)
    ward.finish()


def work_too_slowly(ward: Ward) -> Staging:
    """Let a client keep up, and then work at half the rate of the producer."""
    work(ward, 200, sent=2, done=2)
    work(ward, 100, sent=2, done=1)
    [place] = ward.pull(linger_ms=1, count=1)
    yield ("clients: 1",)
    ward.answer(place, success=True)
    ward.finish()


@situation("lag", "WARN", "slow_consumer", timeout=300_000, delayTimeThreshold=20_000)
def slow_consumer(ward: Ward) -> Staging:
    """A client that always works is slower than the producer."""
    yield from work_too_slowly(ward)


@situation("lag", "WARN", "slow_consumer", timeout=300_000, delayTimeThreshold=300_000)
def lag_grows_below_the_target(ward: Ward) -> Staging:
    """The lag grows for two minutes, and no message is older than the target yet."""
    yield from work_too_slowly(ward)


@situation("poison", "BLOCKED", "poison_message", retryIntervals=[20_000, -1], maxRetry=-1)
def poison_key(ward: Ward) -> Staging:
    """One message fails again and again, and its key waits."""
    for _ in range(15):
        ward.send("orders", "poison")
    for _ in range(9):
        ward.fail(1)
        ward.run(25)
    yield "offset 0", "10.9.0.1"
    ward.finish()


@situation("paused", "PAUSED", "paused")
def paused_group(ward: Ward) -> Staging:
    """An operator paused the group."""
    send(ward, 5)
    ward.finish()
    assert change(ward.world, "pause", PauseBody(group="by-key")) is not None
    send(ward, 20)
    ward.run(STOP_SECONDS)
    yield ("by an operator",)
    assert change(ward.world, "resume", PauseBody(group="by-key")) is not None
    ward.finish()


# Messages.


@situation("no_answer", "STALL", "unanswered", timeout=3_600_000)
def one_message_unanswered(ward: Ward) -> Staging:
    """A client holds one message for minutes without an answer, and others work on."""
    ward.send("orders", "hung")
    silent = ward.consumer
    [place] = ward.pull(count=1)
    ward.consumer = ward.line("10.9.0.2")
    work(ward, 230, sent=1, done=1)
    ward.finish()
    yield "offset 0", "10.9.0.1"
    ward.consumer = silent
    ward.answer(place, success=True)
    ward.finish()


@situation("key_held", "WARN", "unanswered", timeout=3_600_000)
def one_key_unanswered(ward: Ward) -> Staging:
    """A client holds the first message of a key for minutes, and more messages of that key come."""
    ward.send("orders", "k")
    [place] = ward.pull()
    for _ in range(40):
        ward.send("orders", "k")
        ward.run(10)
    yield "offset 0", "10.9.0.1"
    ward.answer(place, success=True)
    ward.finish()


class Ledger(Action):
    """An action whose server is down while `down`."""

    down = False

    def act(self, job: Job) -> Status:
        """Write to the server. Raises Failed."""
        if self.down:
            raise Failed("the ledger at 10.0.0.7 does not answer")
        return Status.CONTINUE


@situation(
    "poison",
    "BLOCKED",
    "all_fail",
    actions=["Async", "tests.verdicts.of_lag:Ledger", "PullServer"],
    retryIntervals=[20_000, -1],
    maxRetry=-1,
)
def everything_fails(ward: Ward) -> Staging:
    """Every message fails with one reason."""
    send(ward, 5)
    ward.finish()
    Ledger.down = True
    send(ward, 30)
    ward.run(STOP_SECONDS)
    yield ("the ledger at 10.0.0.7 does not answer",)
    Ledger.down = False
    ward.run(30)
    ward.finish()


@situation("lost_to_retention", "DATA_LOSS", "no_consumer", "near_retention", over_seconds=700.0)
def retention_takes_messages_without_a_consumer(ward: Ward) -> Staging:
    """Nobody consumes any more, and messages are deleted."""
    send(ward, 5)
    ward.finish()
    ward.fill(6)
    ward.run(70)
    ward.reload(retentionBytes=3 * SEGMENT_BYTES)
    ward.run(10)
    yield ()
    ward.finish()
    ward.world.step_clock(25 * 3_600_000)


@situation("lost_to_retention", "DATA_LOSS", "slow_consumer", "near_retention", over_seconds=700.0, timeout=300_000)
def retention_takes_messages_of_a_consumer(ward: Ward) -> Staging:
    """A consumer works, and messages are deleted before it has them."""
    for number in range(18):
        for key in "ab":
            ward.publish("orders", f"{key}{number}", body_bytes=20_000)
        places = ward.pull(linger_ms=1, count=1)
        ward.run(18)
        for place in places:
            ward.answer(place, success=True)
    [place] = ward.pull(linger_ms=1, count=1)
    ward.reload(retentionBytes=2 * SEGMENT_BYTES)
    ward.run(10)
    yield ()
    ward.answer(place, success=True)
    ward.finish()
    ward.world.step_clock(25 * 3_600_000)


# Other consumers.


@situation("no_puller", "STOP", "no_consumer", orderKey=None, actions=["LowLevel"])
def stream_of_spark_stopped(ward: Ward) -> Staging:
    """A client that keeps its own offsets fetched and committed, and went."""
    send(ward, 5)
    _commit(ward, _fetch(ward), 5)
    send(ward, 20)
    ward.run(STOP_SECONDS)
    yield ("20 messages",)
    _commit(ward, _fetch(ward), 25)


def _fetch(ward: Ward) -> str:
    """Fetch as a stream does; returns the name of the queue."""
    request = consumer_idl.FetchRequest(
        consumerId="spark-1", groupId="by-key", cluster="", maxBatchSize=100, maxLingerTime=1, version="ward"
    )
    reply = ward.call(ward.consumer, "fetch", request=request).value
    assert reply.code is None, reply
    [row] = reply.results
    return str(row.qid)


def _commit(ward: Ward, qid: str, offset: int) -> None:
    result = consumer_idl.AckResult(
        consumerId="spark-1", groupId="by-key", cluster="", offsets={"orders": {qid: offset}}
    )
    assert ward.call(ward.consumer, "ack", result=result).value


@situation(
    "sink_waits",
    "STALL",
    "sink_waits",
    actions=["Async", "Hdfs"],
    options={"Hdfs": {"urls": ["http://10.0.0.51:9870"], "rootPath": "/o", "userName": "etl", "flushMs": 1}},
)
def sink_without_a_server(ward: Ward) -> Staging:
    """A group's sink waits for its server."""
    send(ward, 20)
    ward.run(STOP_SECONDS)
    yield ("10.0.0.51:9870",)
    node = NameNode()
    node.url = "http://10.0.0.51:9870"
    task = ward.world.loop.create_task(serve_http(ward.world.network, node.answer, "10.0.0.51", 9870))
    ward.world.run(until=task.done, seconds=5)
    ward.run(30)


# Operators.


@situation("lag", "WARN", "operator_reset", timeout=300_000, delayTimeThreshold=10_000, over_seconds=WINDOW_SECONDS)
def operator_reset(ward: Ward) -> Staging:
    """An operator reset the group to the beginning, and the consumer is as slow as the producer."""
    work(ward, 60, sent=4, done=4)
    ward.finish()
    # A sample has all of it.
    ward.run(15)
    body = ResetBody(group="by-key", topic="orders", to="earliest", dry_run=False)
    assert change(ward.world, "reset_offsets", body) is not None
    work(ward, 30, sent=1, done=1)
    yield ("when it was 240",)
    ward.finish()


@situation("no_puller", "STOP", "no_consumer")
def group_deleted(ward: Ward) -> Staging:
    """A group without a consumer is taken out of the configuration: it is no longer judged."""
    fall_behind(ward)
    yield ("20 messages",)
    ward.edit_group(lambda groups: groups.clear())


@situation("lost_to_retention", "DATA_LOSS", "topic_deleted")
def topic_deleted(ward: Ward) -> Staging:
    """A topic is emptied by an operator before the group has finished its messages: retention took nothing."""
    send(ward, 20)
    ward.run(20)
    ward.edit_group(lambda groups: groups[0]["topics"][0].update(topic=LATER))
    ward.run(20)
    body = DeletionBody(topic="orders", confirm="orders", force=True)
    assert change(ward.world, "delete_topic", body) is not None
    ward.edit_group(lambda groups: groups[0]["topics"][0].update(topic="orders"))
    ward.run(30)
    yield ("20 messages were deleted",)
    ward.edit_group(lambda groups: groups.clear())


@situation(None, "OK", "")
def operator_reset_to_the_end(ward: Ward) -> Staging:
    """An operator passes over all messages of a group without a consumer: that is no trouble, and no consumption."""
    send(ward, 200)
    ward.run(20)
    body = ResetBody(group="by-key", topic="orders", to="latest", dry_run=False)
    assert change(ward.world, "reset_offsets", body) is not None
    ward.run(20)
    yield ()


@situation(None, "OK", "")
def group_at_rest_after_a_restart(ward: Ward) -> Staging:
    """A group that has read everything is well after a restart, too."""
    send(ward, 20)
    ward.finish()
    ward.run(30)
    ward.restart(kill=True)
    ward.run(STOP_SECONDS)
    yield ()
