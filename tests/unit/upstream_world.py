"""A broker, the ack journal and one consumer group on a simulated disk and a manual clock, for tests of `upstream`."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Sequence
from functools import partial
from random import Random
from typing import Any, Literal

from actions.registry import Registry
from broker.errors import DiskFull
from broker.features import ALL
from broker.format.properties import encode_properties
from broker.log.put import Put
from broker.options import StoreOptions
from broker.runtime.bundle import runtime_of
from broker.runtime.file_writes import at_once
from broker.runtime.metrics import Metrics
from broker.runtime.rate_limited_log import RateLimitedLog
from broker.runtime.seams import Disk
from broker.runtime.steps import run_now
from broker.store import Store
from conf.models import GroupConfig
from pyddmq.testing import ManualClock, ManualScheduler, SimDisk
from tests.fakes.memory.broker import MemoryBroker
from upstream.calls.node_calls import NodeCalls
from upstream.delivery.group import ConsumerGroup
from upstream.delivery.pauses import Pauses
from upstream.delivery.results import Applied
from upstream.delivery.subscription import Subscription
from upstream.embedded.broker import EmbeddedBroker
from upstream.embedded.queues import EmbeddedQueues
from upstream.group_parts import GroupLimits, NodeSeams
from upstream.job import GroupQueue, UpstreamJob
from upstream.operate.heads import Head
from upstream.progress.progress import Progress
from upstream.source import Broker
from upstream.waiting.buffer import BufferLimits, PulledBatch

ROOT = "/data"
QID = "c_b_"


class Client:
    """A connection as the buffer sees it, over which every reply has left."""

    heard = carried = 0

    def __init__(self, address: str = "10.0.0.1:5000", client: str = "") -> None:
        self.address = address
        self.client = client
        self.closed = False


class World:
    """One node without a network: publish, pull, answer, let time pass, kill and start again."""

    segment_bytes = 1 << 22
    message_bytes_max = 4 << 20
    flush: Literal["sync", "async"] = "sync"
    calls: NodeCalls | None = None
    may_hand_out: Callable[[], bool] | None = None
    awaits_partitions: Callable[[], bool] | None = None

    def __init__(
        self,
        *subscriptions: dict[str, Any],
        group: str = "g",
        queues: int = 4,
        limits: BufferLimits | None = None,
        waiting_max: int = 100_000,
        disk: Disk | None = None,
        registry: Registry | None = None,
    ) -> None:
        self.clock = ManualClock()
        self.scheduler = ManualScheduler(self.clock)
        self.sim = SimDisk()
        self.disk: Disk = disk or self.sim
        self.subscriptions = subscriptions or ({"topic": "t"},)
        self.group_name = group
        self.queues = queues
        self.limits = limits
        self.waiting_max = waiting_max
        self.registry = registry or Registry()
        self.counter = 0
        self.random_numbers = Random(2)
        self.open()

    def config(self, *subscriptions: dict[str, Any]) -> GroupConfig:
        """Make the group's configuration with these subscriptions (defaults: the world's), in YAML's names."""
        return GroupConfig.model_validate(
            {"group": self.group_name, "topics": list(subscriptions or self.subscriptions)}
        )

    def open(self) -> None:
        """Start the node on what the disk holds."""
        self.metrics = Metrics()
        self.limited_log = RateLimitedLog(self.clock)
        self.store = Store.open(
            ROOT,
            options=StoreOptions(
                segment_bytes=self.segment_bytes, message_bytes_max=self.message_bytes_max, flush=self.flush
            ),
            features=ALL,
            disk=self.disk,
            clock=self.clock,
            random=Random(1),
            metrics=self.metrics,
        )
        self.store_opened()
        for each in self.subscriptions:
            if not each["topic"].startswith("%"):
                self.store.create_topic(each["topic"], self.queues)
        self.progress = run_now(
            Progress.opening(
                ROOT,
                queues=EmbeddedQueues(self.store),
                file_writes=self.store.file_writes,
                runtime=runtime_of(self.disk, self.clock, metrics=self.metrics, scheduler=self.scheduler),
            )
        )
        self.pauses = Pauses.open(ROOT, disk=self.disk, clock=self.clock)
        self.group = self.make_group(self.config())
        self.group.start()

    def store_opened(self) -> None:
        """The store is open, and nothing else is yet."""

    def broker(self) -> Broker:
        """Return what groups ask for messages."""
        runtime = runtime_of(
            self.disk, self.clock, metrics=self.metrics, scheduler=self.scheduler, limited_log=self.limited_log
        )
        return EmbeddedBroker(self.store, runtime)

    def all_of_broker(self) -> EmbeddedBroker | MemoryBroker | None:
        """The same broker, where failed messages have a topic and clients may keep offsets of their own."""
        broker = self.broker()
        return broker if isinstance(broker, EmbeddedBroker | MemoryBroker) else None

    def make_group(self, config: GroupConfig) -> ConsumerGroup:
        """Make a group on this node."""
        return ConsumerGroup(
            config,
            node=NodeSeams(
                broker=self.broker(),
                retry_queues=self.all_of_broker(),
                stretches=self.all_of_broker(),
                progress=self.progress,
                runtime=runtime_of(
                    self.disk,
                    self.clock,
                    random=self.random_numbers,
                    metrics=self.metrics,
                    scheduler=self.scheduler,
                    limited_log=self.limited_log,
                ),
                calls=self.calls,
                may_hand_out=self.may_hand_out,
                awaits_partitions=self.awaits_partitions,
            ),
            make_actions=self.registry.make,
            qid_prefix=QID,
            limits=GroupLimits(buffer=self.limits or BufferLimits(), waiting_max=self.waiting_max),
            paused=partial(self.pauses.of, self.group_name),
        )

    def group_queue(self, queue: int = 0, topic: str = "t") -> GroupQueue:
        """Return a queue as the group sees it."""
        group_queue = self.group.group_queue(topic, queue)
        assert group_queue is not None
        return group_queue

    def generation(self, job: UpstreamJob) -> Subscription:
        """Return the generation that has a job."""
        found = self.group.generation_of(job.group_queue)
        assert found is not None
        assert found is job.subscription
        return found

    def head(self, job: UpstreamJob) -> Head:
        """Return a job as an operator's hand takes it, unasked whether it may be."""
        return Head(job, self.generation(job))

    def settle(self) -> None:
        """End the turn and make it durable, as the node does before it answers an operator."""
        self.turn_end()
        self.progress.sync()

    def pause(self, topic: str | None = None) -> bool:
        """Pause the group or a topic of it."""
        changed = at_once(self.disk, self.pauses.pausing(self.group_name, topic, who="test"))
        self.group.apply_pauses()
        return changed

    def resume(self, topic: str | None = None) -> bool:
        """Resume the group or a topic of it."""
        changed = at_once(self.disk, self.pauses.resuming(self.group_name, topic))
        self.group.apply_pauses()
        self.turn_end()
        return changed

    def fill_disk(self, *, reserve: bool = True) -> None:
        """Leave no byte free, in the log's file neither; with `reserve` not in the one for dead letters, too."""
        self.store.create_topic("filler", 1)
        self.store.create_topic("%DLQ%filler", 1, system=True)
        if reserve:
            self.store.create_topic(f"%DLQ%{self.group_name}", 1, system=True)
        self.turn_end()
        self.sim.capacity_bytes = 0
        for topic in ("filler", "%DLQ%filler") if reserve else ("filler",):
            for size in (min(2 << 20, self.segment_bytes // 2), 1 << 10, 1):
                with contextlib.suppress(DiskFull):
                    while True:
                        put = Put(self.store.topics[topic], 0, bytes(size), b"")
                        self.store.append([put], born_ms=0, born_host=bytes(8))
                        self.turn_end()

    def kill(self) -> None:
        """End the process: what was written stays, what was only staged is gone; then start again."""
        self.group.stop()
        self.scheduler = ManualScheduler(self.clock)
        self.sim.kill()
        self.open()

    def lose_power(self) -> None:
        """End the process, and with it what was not synced; then start again."""
        self.group.stop()
        self.scheduler = ManualScheduler(self.clock)
        self.sim.crash(Random(1), modes=("none",))
        self.open()

    def stage(
        self,
        *keys: str | None,
        topic: str = "t",
        queue: int | None = None,
        body: Any = None,
        tag: str = "",
        properties: Sequence[tuple[str, str]] = (),
    ) -> None:
        """Append one message per key without flushing; the body is a running number or `body` as JSON."""
        puts = []
        for key in keys:
            self.counter += 1
            pairs = [*properties]
            if key is not None:
                pairs.append(("KEYS", key))
            if tag:
                pairs.append(("TAGS", tag))
            data = body if isinstance(body, bytes) else json.dumps(self.counter if body is None else body).encode()
            target = self.store.topics[topic]
            place = self.counter % len(target.queues) if queue is None else queue
            puts.append(Put(target, place, data, encode_properties(pairs), tag.encode()))
        self.store.append(puts, born_ms=self.clock.wall_ms(), born_host=b"\x7f\x00\x00\x01\x00\x00\x00\x00")

    def publish(self, *keys: str | None, **how: Any) -> None:
        """Append one message per key and end the turn."""
        self.stage(*keys, **how)
        self.turn_end()

    def turn_end(self) -> None:
        """Do what the node does at the end of a turn."""
        while self.store.pending:
            self.store.flush()
        self.progress.flush()

    def advance(self, seconds: float) -> None:
        """Let time pass, turn by turn."""
        end = self.clock.monotonic() + seconds
        while True:
            due = self.scheduler.next_due()
            if due is None or due > end:
                break
            self.scheduler.advance(max(0.0, due - self.clock.monotonic()))
            self.turn_end()
        self.scheduler.advance(max(0.0, end - self.clock.monotonic()))
        self.turn_end()

    def pull(self, client: Client, topic: str | None = None, count: int | None = None) -> PulledBatch | None:
        """Pull once and end the turn."""
        batch = self.group.pull(topic, count, client)
        self.turn_end()
        return batch

    def pull_all(self, client: Client, topic: str | None = None) -> list[UpstreamJob]:
        """Pull until nothing is there."""
        jobs: list[UpstreamJob] = []
        while (batch := self.pull(client, topic)) is not None:
            jobs += batch.jobs
        return jobs

    def answer(self, client: Client, job: UpstreamJob, *, fail: bool = False) -> Applied:
        """Ack (or fail) one job as `client` and end the turn."""
        offsets: list[int] = [job.offset]
        applied = self.group.apply(job.topic, job.qid, [] if fail else offsets, offsets if fail else [], client)
        self.turn_end()
        return applied

    def body(self, job: UpstreamJob) -> Any:
        """Read the message's body as JSON."""
        return json.loads(job.message.body)

    def dead_letters(self) -> list[dict[str, str]]:
        """Properties of the group's dead letters, in order, with the body under `body`."""
        topic = self.store.topics.get(f"%DLQ%{self.group_name}")
        return [] if topic is None else list(self.read_all(topic.name))

    def read_all(self, name: str) -> list[dict[str, str]]:
        """Properties and body of every message of a topic."""
        from broker.format.properties import parse_properties
        from broker.format.record import split

        found = []
        for queue in self.store.topics[name].queues:
            for physical, size, _ in queue.read(0, queue.max_offset):
                body, block = split(self.store.read(physical, size))
                found.append({**parse_properties(block), "body": bytes(body).decode()})
        return found

    def count(self, name: str, *labels: str) -> int:
        """Value of a counter; without labels over all of them."""
        return self.metrics.value(name, *labels)
