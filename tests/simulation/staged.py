"""Troubles of a node, each staged by a generator: up to its first `yield` it is brought about, afterwards it is over.

A stage yields words that must be in the finding. `STAGES` has them by the finding that must appear, with what the node
has to be configured with and how long after its end the finding may still show (rules over the last minute need that
minute).
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

from aiohttp.web import BaseRequest, Response, StreamResponse

from broker.queues.topics import retry_topic
from broker.runtime.steps import run_now
from proxy.node.logs import LOST
from proxy.operate.changes.timers import StageBody
from pyddmq.actions import Action, Job
from pyddmq.testing import SimSyncs
from tests.fakes.http import serve_http
from tests.insides import opened_of
from tests.simulation.loops import TOPIC as LATER
from tests.simulation.operator import change
from tests.simulation.ward import SEGMENT_BYTES, Ward
from tests.simulation.wire import consumer_idl, producer_idl
from tests.simulation.world import DATA

MINUTE = 70.0
"""Within which a rise of the last minute is forgotten."""

Staging = Iterator[tuple[str, ...]]


@dataclass(frozen=True, kw_only=True)
class Stage:
    """A trouble.

    Attributes:
        kind: The finding that must appear.
        run: Brings it about, yields, and ends it.
        by_key: Settings of the group's subscription.
        node: Settings of the node.
        over_seconds: How long after its end the finding may show.
    """

    kind: str
    run: Callable[[Ward], Staging]
    by_key: dict[str, Any]
    node: dict[str, Any]
    over_seconds: float

    def prepare(self, wanted: dict[str, Any]) -> None:
        """Configure the node."""
        wanted["node"].update(self.node)
        wanted["groups"][0]["topics"][0].update(self.by_key)


STAGES: dict[str, Stage] = {}


def stage(
    kind: str, *, over_seconds: float = 5.0, node: dict[str, Any] | None = None, **by_key: Any
) -> Callable[[Callable[[Ward], Staging]], Callable[[Ward], Staging]]:
    """Enter a trouble into the table."""

    def enter(run: Callable[[Ward], Staging]) -> Callable[[Ward], Staging]:
        name = run.__name__
        STAGES[name] = Stage(kind=kind, run=run, by_key=by_key, node=node or {}, over_seconds=over_seconds)
        return run

    return enter


# Groups.


@stage("poison", over_seconds=25.0, retryIntervals=[300, -1])
def poison_key(ward: Ward) -> Staging:
    """A message that its consumer fails each time, and retries for ever."""
    ward.send("orders", "poison")
    ward.fail(5)
    yield "key poison fails", "5 deliveries", "failed by 10.9.0.1"
    ward.finish()


@stage("poison", over_seconds=25.0, retryIntervals=[300, -1])
def poison_without_key(ward: Ward) -> Staging:
    """The same for a group without order."""
    ward.send("orders", "")
    ward.fail(5)
    yield ()
    ward.finish()


@stage("stopped", retryIntervals=[], onExhausted="stopKey")
def stopped_key(ward: Ward) -> Staging:
    """A message is out of attempts, and its key waits for an operator."""
    ward.send("orders", "k")
    [place] = ward.pull()
    ward.answer(place, success=False)
    yield ("key k is stopped",)
    ward.skip(place)


@stage("poison_retried", orderKey=None, retryTopic=True, retryIntervals=[100, -1], over_seconds=MINUTE)
def poison_in_the_retry_topic(ward: Ward) -> Staging:
    """The same for a group whose failed messages go through its retry topic."""
    ward.send("orders", "poison")
    ward.fail(6)
    yield ()
    ward.finish()


@stage("key_held", timeout=300_000)
def held_key(ward: Ward) -> Staging:
    """A client has the first message of a key, and another one waits behind it."""
    ward.send("orders", "k")
    ward.send("orders", "k")
    [place] = ward.pull()
    ward.run(60)
    yield "key k is in flight with 10.9.0.1", "1 message behind it"
    ward.answer(place, success=True)
    ward.finish()


@stage("timeouts", maxRetry=-1, over_seconds=MINUTE)
def late_answers(ward: Ward) -> Staging:
    """Clients that need longer than the timeout."""
    ward.send("orders", "k")
    for _ in range(3):
        ward.pull()
        ward.run(2)
    yield ("3 deliveries",)
    ward.finish()


@stage("retry_storm", retryIntervals=[50, -1], over_seconds=MINUTE)
def failing_consumers(ward: Ward) -> Staging:
    """Everything fails, since what the consumers need is down."""
    for number in range(25):
        ward.send("orders", f"k{number}")
    ward.fail(100)
    yield ()
    ward.finish()


@stage("dead_letters", retryIntervals=[], over_seconds=MINUTE)
def dead_letter_flood(ward: Ward) -> Staging:
    """Many messages are given up within a minute."""
    for number in range(10):
        ward.send("orders", f"k{number}")
    ward.fail(10)
    yield ("10 messages",)


@stage("dead_letters_refused", retryIntervals=[])
def refused_dead_letters(ward: Ward) -> Staging:
    """The disk is full, what was set aside for dead letters is gone, and a message has to become one."""
    ward.send("orders", "k")
    ward.fill_disk()
    ward.restart(partial(_give_up_reserve, ward))
    ward.fail(1)
    yield ("8 dead letters",)
    ward.disk.capacity_bytes = None
    ward.run(3)


@stage("unreadable", over_seconds=MINUTE)
def damaged_message(ward: Ward) -> Staging:
    """A message turns out damaged when it is read."""
    for _ in range(6):
        ward.send("orders", "k")
    ward.fill(3)
    ward.run(15)
    ward.restart(partial(ward.flip, f"commitlog/{0:020}", 460))
    ward.pull(linger_ms=500)
    yield ()
    ward.finish()


@stage("reading_stopped", node={"maxWaitingPerTopic": 5}, timeout=300_000)
def waiting_cap(ward: Ward) -> Staging:
    """As many messages wait behind a key as may."""
    for _ in range(20):
        ward.send("orders", "k")
    [place] = ward.pull()
    yield ("messages wait for earlier ones",)
    ward.answer(place, success=True)
    ward.finish()


@stage(
    "push_failing",
    over_seconds=25.0,
    actions=["Async", "AsyncHttp"],
    urls=["http://10.0.0.50:80/hook"],
    maxRetry=-1,
    options={"AsyncHttp": {"breaker": {"failures": 2, "openMs": 200, "openMsMax": 400}}},
)
def receiver_is_gone(ward: Ward) -> Staging:
    """Nobody listens where a group pushes to."""
    for key in "abc":
        ward.send("orders", key)
    yield "http://10.0.0.50/hook", "Cannot connect to host 10.0.0.50:80"

    async def take(request: BaseRequest) -> StreamResponse:
        await request.read()
        return Response()

    task = ward.world.loop.create_task(serve_http(ward.world.network, take, "10.0.0.50", 80))
    ward.world.run(until=task.done, seconds=5)
    ward.run(3)


@stage("queues_owned")
def queues_of_another(ward: Ward) -> Staging:
    """A consumer inside the program has the group's queues."""
    ward.edit_group(lambda groups: groups.pop(0))
    ward.run(2)
    places = [("orders", number) for number in range(4)]
    locks = opened_of(ward.node).store.queue_locks
    locks.lock_batch("by-key", "inside@1", places)
    ward.edit_group(lambda groups: groups.insert(0, ward.first_group))
    yield ("inside@1",)
    locks.unlock_batch("by-key", "inside@1", places)


class Unopened(Action):
    """An action that does not open while `broken`."""

    broken = False

    def open(self) -> None:
        """Open it. Raises RuntimeError."""
        if self.broken:
            raise RuntimeError("the cache at 10.0.0.5 does not answer")

    def act(self, job: Job) -> Any:
        """Let everything through."""
        raise NotImplementedError


@stage("not_starting", over_seconds=10.0)
def action_does_not_open(ward: Ward) -> Staging:
    """An action of a new generation cannot be opened."""
    Unopened.broken = True
    actions = ["tests.simulation.staged:Unopened", "PullServer"]
    ward.edit_group(lambda groups: groups[0]["topics"][0].update(actions=actions))
    yield ("the cache at 10.0.0.5 does not answer",)
    Unopened.broken = False


@stage("near_retention", node={"retentionHours": 1})
def nearly_lost_messages(ward: Ward) -> Staging:
    """A message is about to be deleted before its group has it."""
    ward.send("orders", "k")
    ward.world.step_clock(55 * 60_000)
    yield ()
    ward.reload(retentionHours=100)


# The disk.


@stage("failed")
def failed_sync(ward: Ward) -> Staging:
    """A sync of the log fails."""
    ward.disk.fail("sync", path_part="/commitlog/")
    ward.publish("orders")
    yield ("the commit log",)
    ward.disk.heal()
    ward.restart(kill=True)


@stage("failed")
def failed_journal(ward: Ward) -> Staging:
    """A write of the ack journal fails."""
    ward.send("orders", "k")
    [place] = ward.pull()
    ward.disk.fail("write", path_part="/pyddmq/acks/")
    ward.answer(place, success=True)
    yield ("the ack journal",)
    ward.disk.heal()
    ward.restart(kill=True)


@stage("acks_refused")
def full_journal(ward: Ward) -> Staging:
    """The disk is full, and so is the ack journal."""
    ward.send("orders", "k")
    [place] = ward.pull()
    for _ in range(10_000):
        ward.disk.fail("write", path_part="/pyddmq/acks/", error=errno.ENOSPC)
    ward.answer(place, success=True)
    yield ()
    ward.disk.heal()
    ward.finish()


@stage("disk_full")
def full_disk(ward: Ward) -> Staging:
    """No further log file can be had, and the present one is full."""
    ward.fill_disk()
    yield ()
    ward.disk.capacity_bytes = None


@stage("disk_low")
def nearly_full_disk(ward: Ward) -> Staging:
    """Little space is left."""
    ward.disk.capacity_bytes = ward.disk.used_bytes() + 100_000_000
    yield ()
    ward.disk.capacity_bytes = None


@stage("reserve_missing")
def nothing_set_aside(ward: Ward) -> Staging:
    """The node starts on a disk that is too full to set anything aside."""
    ward.restart(partial(_give_up_reserve, ward))
    yield ()
    ward.disk.capacity_bytes = None


@stage("retention_blocked", node={"retentionHours": 100})
def stopped_retention(ward: Ward) -> Staging:
    """A log file is due, a message in it waits for its moment, and the disk is full."""
    ward.send("orders", "k", deliverAtMs=ward.world.clock.wall_ms() + 10 * 3_600_000)
    ward.fill(5)
    ward.run(15)
    ward.fill_disk()
    ward.reload(retentionBytes=3 * SEGMENT_BYTES)
    yield ()
    ward.disk.capacity_bytes = None


@stage("retention_waits")
def waiting_limits(ward: Ward) -> Staging:
    """The node starts with a smaller log than before, and groups have not finished what would go."""
    ward.fill(5)
    ward.run(15)
    ward.wanted["node"].update(retentionBytes=3 * SEGMENT_BYTES)
    ward.world.config = ward.load().config
    ward.restart()
    yield ()
    assert ward.edit(accept_loss=True).accepted


@stage("slow_sync", over_seconds=100.0)
def slow_disk(ward: Ward) -> Staging:
    """Syncs take seconds."""
    syncs = ward.node.parts.seams.syncs
    assert isinstance(syncs, SimSyncs)
    syncs.seconds_max = 6.0
    for _ in range(3):
        ward.send("orders", "k")
    syncs.seconds_max = 0.002
    yield ()


@stage("damage", over_seconds=30.0, node={"retentionHours": 100})
def damage(ward: Ward) -> Staging:
    """Records in the middle of the log are damaged, and the start that follows a kill finds it."""
    for _ in range(5):
        ward.send("orders", "k")
    ward.world.kill()
    for place in range(400, 500, 7):
        ward.flip(f"commitlog/{0:020}", place)
    ward.start()
    yield "1 place", "offset 370"
    ward.fill(5)
    ward.run(3)
    ward.reload(retentionBytes=3 * SEGMENT_BYTES)


@stage("file_damaged")
def damaged_file(ward: Ward) -> Staging:
    """A small file is damaged, and its copy is used."""
    flip = partial(ward.flip, "config/topics.json", 0)
    ward.restart(flip)
    yield ("topics.json",)
    # As a repair does.
    ward.restart(flip)


@stage("files_deleted", over_seconds=MINUTE)
def deleted_files(ward: Ward) -> Staging:
    """Another program deletes small files of a node that runs."""
    for name in ("topics.json", "consumerOffset.json"):
        ward.disk.remove(f"{DATA}/config/{name}")
    ward.run(15)
    yield ("topics.json", "consumerOffset.json")


@stage("acks_damaged")
def damaged_acks(ward: Ward) -> Staging:
    """The ack journal is damaged."""
    for _ in range(3):
        ward.send("orders", "k")
        ward.finish()

    def damage() -> None:
        [name, *_] = [each for each in ward.disk.list(f"{DATA}/pyddmq/acks") if each.endswith(".acks")]
        for place in range(60, 400, 9):
            ward.flip(f"pyddmq/acks/{name}", place)

    ward.restart(damage, kill=True)
    yield ()
    ward.restart()


@stage("index_failed")
def failed_index(ward: Ward) -> Staging:
    """A write to an index file fails."""
    for _ in range(50):
        ward.disk.fail("write", path_part="/index/")
        ward.disk.fail("create", path_part="/index/")
    ward.fill(1)
    ward.run(5)
    yield ()
    ward.disk.heal()
    ward.restart(kill=True)


# The process.


@stage("not_ready")
def draining(ward: Ward) -> Staging:
    """The node is told to stop while a client has a message."""
    ward.send("orders", "k")
    ward.pull()
    assert ward.world.process is not None
    task = ward.world.process.run(ward.world.loop.create_task, ward.node.stop())
    yield ()
    ward.world.run(until=task.done, seconds=60)
    ward.restart(kill=True)


@stage("memory")
def memory_ceiling(ward: Ward) -> Staging:
    """What is held is near the ceiling."""
    ward.process_run(ward.node.parts.memory.budget.configure, 4_096)
    ward.process_run(ward.node.parts.memory.budget.add, 4_000)
    yield ()
    ward.process_run(ward.node.parts.memory.budget.add, -4_000)
    ward.process_run(ward.node.parts.memory.budget.configure, 1 << 40)
    ward.send("orders", "k")


@stage("loop_late", over_seconds=25.0)
def late_loop(ward: Ward) -> Staging:
    """An action blocks the loop."""
    ward.world.loop.call_soon(ward.world.loop.pass_time, 2.0)
    ward.run(1)
    yield ()


@stage("clock_forward", over_seconds=700.0)
def clock_forward(ward: Ward) -> Staging:
    """The wall clock jumps ahead."""
    ward.world.step_clock(3_600_000)
    yield ("by 1 h",)


@stage("clock_back", over_seconds=150.0)
def clock_back(ward: Ward) -> Staging:
    """The wall clock was ahead, is set right, and the node starts anew: its messages have store times to come."""
    ward.world.step_clock(120_000)
    ward.publish("orders")
    ward.world.step_clock(-120_000)
    ward.restart()
    ward.run(3)
    yield ("1 min 57 s",)


@stage("reload_refused")
def refused_reload(ward: Ward) -> Staging:
    """The configuration file has an error."""
    assert not ward.edit("node: {data: /data, drainSecond: 5}").accepted
    yield ("drainSecond",)
    assert ward.edit().accepted


@stage("config_missing")
def vanished_configuration(ward: Ward) -> Staging:
    """Somebody removes the configuration file."""
    there, ward.signature = ward.signature, None
    ward.look()
    yield ("node.yaml",)
    ward.signature = there
    ward.look()


@stage("work_failing")
def retention_raises(ward: Ward) -> Staging:
    """A fault of ours in work that runs each second."""

    def broken() -> None:
        raise RuntimeError("a file that should be there is not")

    ward.process_run(ward.node.periodic.repeat, "retention", 1.0, broken)
    yield "retention", "a file that should be there is not"
    ward.process_run(ward.node.periodic.repeat, "retention", 1.0, opened_of(ward.node).retaining.run)


@stage("internal_fault", over_seconds=700.0)
def fault_in_a_call(ward: Ward) -> Staging:
    """A fault of ours in one call."""
    service = opened_of(ward.node).consumer_service
    ward.node.consumer.serve(dict.fromkeys(service.line.methods, _broken))
    ward.call(ward.consumer, "pull", request=consumer_idl.PullRequest(groupId="by-key", version="ward"))
    ward.node.consumer.serve(service.handlers(), service.line)
    yield ("not thought of",)


def _broken(*_: object) -> None:
    raise ValueError("not thought of")


@stage("log_lines_lost", over_seconds=MINUTE)
def unwritable_log(ward: Ward) -> Staging:
    """Nobody reads the node's stderr."""
    ward.node.runtime.metrics.counter(LOST).add(3)
    yield ("3 log lines",)


# Clients in numbers.


@stage("connections_refused", node={"maxConnections": 3}, over_seconds=MINUTE)
def connection_flood(ward: Ward) -> Staging:
    """More connect than may."""
    lines = [ward.line(f"10.9.1.{number}") for number in range(40)]
    for line in lines:
        line.connect()
    ward.run(2)
    yield ()
    for line in lines:
        line.stopped = True


@stage("publishes_refused", over_seconds=MINUTE)
def refused_publishes(ward: Ward) -> Staging:
    """A producer sends to a topic that there is not."""
    for _ in range(30):
        assert ward.publish("ordres") == 14
    yield "30 publishes", "code 14"


@stage("pulls_refused", over_seconds=MINUTE)
def refused_pulls(ward: Ward) -> Staging:
    """A client pulls with a group that there is not."""
    for _ in range(30):
        ward.pull("by-kee")
    yield ("30 pulls",)


@stage("client_limited", over_seconds=MINUTE)
def client_at_its_limit(ward: Ward) -> Staging:
    """A client sends more often than its line allows."""
    ward.wanted["limits"] = {"addresses": [{"networks": ["10.9.0.1/32"], "requestsPerSecond": 1}]}
    assert ward.edit().accepted
    assert {ward.publish("orders") for _ in range(3)} == {0, 15}
    yield ("10.9.0.1",)
    del ward.wanted["limits"]
    assert ward.edit().accepted


# What waits.


@stage("timers_paused")
def paused_timers(ward: Ward) -> Staging:
    """An operator halted the timers."""
    change(ward.world, "pause_timers", StageBody(stage="all"))
    yield ()
    change(ward.world, "resume_timers", StageBody(stage="all"))


@stage("timers_late")
def late_timers(ward: Ward) -> Staging:
    """A message is due, and is not delivered."""
    ward.send("orders", "k", deliverAtMs=ward.world.clock.wall_ms() + 2_000)
    ward.run(1)
    change(ward.world, "pause_timers", StageBody(stage="dequeue_put_message"))
    ward.run(4)
    yield ()
    change(ward.world, "resume_timers", StageBody(stage="all"))


@stage("timers_refused", over_seconds=20.0)
def loop_without_topic(ward: Ward) -> Staging:
    """The topic of a loop is deleted between two of its deliveries."""
    store, first_s = opened_of(ward.node).store, ward.world.clock.wall_ms() // 1000 + 1
    ward.edit_group(lambda groups: groups.pop())
    add = producer_idl.DelayMessage(
        topic=LATER,
        body=b"x",
        action=1,
        timestamp=first_s,
        dmsgtype=3,
        interval=5,
        times=4,
        expire=first_s + 100,
        uuid="00000001-0000-0000-0000-000000000001",
    )
    assert ward.call(ward.producer, "sendDelaySync", delayMessage=add, timeout=100).value.code == 0
    ward.run(3)
    assert store.topics[LATER].queues[0].max_offset + store.topics[LATER].queues[1].max_offset == 1
    run_now(store.topic_changes.deleting(LATER))
    ward.run(5)
    yield ("later",)
    store.create_topic(LATER, 2)


@stage("undecided", node={"transactionTimeOut": 1_000, "transactionCheckInterval": 1_000, "transactionCheckMax": 1_000})
def undecided_transactions(ward: Ward) -> Staging:
    """Nobody decides a transaction, nor answers its checks."""
    message = producer_idl.Message(topic="orders", key="k", body=b"x")
    half = ward.call(ward.producer, "sendHalfSync", message=message, producerGroup="shop", timeout=1_000).value
    ward.run(6)
    yield ("1 transaction undecided",)
    end = producer_idl.EndTransaction(producerGroup="shop", handle=half.handle, state=12, fromCheck=True)
    ward.call(ward.producer, "endTransaction", decision=end)


@stage("retries_unread")
def unread_retry_topic(ward: Ward) -> Staging:
    """What a consumer of RocketMQ failed is in the retry topic of a group without `retryTopic: true`."""
    topic = retry_topic("by-key")
    opened_of(ward.node).store.create_topic(topic, 1, system=True)
    opened_of(ward.node).store.put(topic, b"x")
    yield ()
    opened_of(ward.node).progress.offsets.set("by-key", topic, 0, 1)


def _give_up_reserve(ward: Ward) -> None:
    """Delete the file that is set aside, and leave no space for another."""
    ward.disk.remove(f"{DATA}/pyddmq/segment.spare")
    ward.disk.capacity_bytes = ward.disk.used_bytes() + 50_000
