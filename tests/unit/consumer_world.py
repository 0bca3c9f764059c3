"""A broker with consumers inside the program, on a simulated disk and a manual clock; listeners end when told to."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any

from broker.consumer import (
    BroadcastConsumer,
    ConcurrentConsumer,
    ConcurrentContext,
    ConcurrentStatus,
    ConsumedMessage,
    ConsumerOptions,
    Consumers,
    OrderlyConsumer,
    OrderlyContext,
    OrderlyStatus,
)
from broker.consumer.shared import Reported, Work, run_inline
from broker.features import ALL
from broker.format.properties import parse_properties
from broker.format.record import split
from broker.options import StoreOptions
from broker.runtime.metrics import Metrics
from broker.runtime.rate_limited_log import RateLimitedLog
from broker.runtime.steps import run_now
from broker.scheduled.delay.delays import Delays
from broker.store import Store
from pyddmq.testing import ManualClock, ManualScheduler, SimDisk

ROOT = "/data"


class Running:
    """One call of a listener that has not ended."""

    def __init__(self, work: Work, reported: Reported) -> None:
        self._work = work
        self._reported = reported

    def end(self) -> None:
        """Run the listener to its end and tell the consumer."""
        run_inline(self._work, self._reported)


class World:
    """One program: send, consume, let time pass, kill and start again."""

    def __init__(
        self,
        *,
        queues: int = 4,
        held: bool = False,
        disk: SimDisk | None = None,
        clock: ManualClock | None = None,
        root: str = ROOT,
    ) -> None:
        self.root = root
        self.options = StoreOptions(segment_bytes=1 << 20)
        self.clock = clock or ManualClock()
        self.disk = disk or SimDisk()
        self.queues = queues
        self.held = held
        self.calls: list[Running] = []
        self.seen: list[tuple[str, int, int, int]] = []
        """Client id, queue, offset and reconsume times of every message that a listener got."""
        self.got: list[tuple[str, str, int]] = []
        """Topic, body and reconsume times of every message that a concurrent or broadcasting listener got."""
        self.delay_level = 0
        self.answers: dict[str, list[Any]] = {}
        """What to answer for a body, in turn; then SUCCESS. An exception is raised."""
        self.auto_commit = True
        self.suspend_ms = -1
        self.open()

    def open(self) -> None:
        """Start the program on what the disk holds."""
        self.scheduler = ManualScheduler(self.clock)
        self.metrics = Metrics()
        self.calls.clear()
        self.store = Store.open(
            self.root,
            options=self.options,
            features=ALL,
            disk=self.disk,
            clock=self.clock,
            random=Random(1),
            metrics=self.metrics,
        )
        self.store.create_topic("t", self.queues)
        self.delays = run_now(
            Delays.opening(
                self.store,
                disk=self.disk,
                clock=self.clock,
                scheduler=self.scheduler,
                metrics=self.metrics,
                limited_log=RateLimitedLog(self.clock),
            )
        )
        self.delays.start()
        self.consumers = Consumers.open(
            self.store,
            disk=self.disk,
            clock=self.clock,
            scheduler=self.scheduler,
            metrics=self.metrics,
            limited_log=RateLimitedLog(self.clock),
            run=self._hold if self.held else run_inline,
        )

    def _hold(self, work: Work, reported: Reported) -> None:
        self.calls.append(Running(work, reported))

    def kill(self) -> None:
        """End the program: nothing is written any more; then start it again."""
        self.kill_and_remove()

    def kill_and_remove(self, *names: str) -> None:
        """Kill the program, and start it again without some of the files under `pyddmq/`."""
        self.store.abandon()
        self.delays.stop()
        self.disk.kill()
        for name in names:
            if self.disk.exists(f"{self.root}/pyddmq/{name}"):
                self.disk.remove(f"{self.root}/pyddmq/{name}")
        self.open()

    def stop(self) -> None:
        """End the program in order, and start it again."""
        self.consumers.close()
        self.delays.close()
        self.store.close()
        self.open()

    def orderly(
        self, client: str = "a", *, group: str = "g", topics: dict[str, str] | None = None, **options: Any
    ) -> OrderlyConsumer:
        """Start an orderly consumer whose listener answers as `answers` says."""

        def listener(batch: Sequence[ConsumedMessage], context: OrderlyContext) -> OrderlyStatus | None:
            context.auto_commit = self.auto_commit
            context.suspend_ms = self.suspend_ms
            self.seen += [(client, each.queue_id, each.offset, each.reconsume_times) for each in batch]
            answer = self.answer(batch)
            assert answer is None or isinstance(answer, OrderlyStatus)
            return answer

        consumer = self.consumers.orderly(
            group, topics or {"t": "*"}, listener, client_id=client, options=ConsumerOptions(**options)
        )
        consumer.start()
        self.scheduler.run_until_idle()
        return consumer

    def concurrent(self, client: str = "a", *, group: str = "g", **options: Any) -> ConcurrentConsumer:
        """Start a concurrent consumer whose listener answers as `answers` says."""
        consumer = self.consumers.concurrent(
            group, {"t": "*"}, self.listener(client), client_id=client, options=ConsumerOptions(**options)
        )
        consumer.start()
        self.scheduler.run_until_idle()
        return consumer

    def broadcasting(self, client: str = "a", *, group: str = "g", **options: Any) -> BroadcastConsumer:
        """Start a broadcasting consumer whose listener answers as `answers` says."""
        consumer = self.consumers.broadcasting(
            group, {"t": "*"}, self.listener(client), client_id=client, options=ConsumerOptions(**options)
        )
        consumer.start()
        self.scheduler.run_until_idle()
        return consumer

    def listener(self, client: str) -> Any:
        def listener(batch: Sequence[ConsumedMessage], context: ConcurrentContext) -> Any:
            self.seen += [(client, each.queue_id, each.offset, each.reconsume_times) for each in batch]
            self.got += [(each.topic, each.body.decode(), each.reconsume_times) for each in batch]
            context.delay_level = self.delay_level
            answer = self.answer(batch)
            return ConcurrentStatus.SUCCESS if answer is OrderlyStatus.SUCCESS else answer

        return listener

    def answer(self, batch: Sequence[ConsumedMessage]) -> Any:
        """Take the next planned answer for a batch."""
        for message in batch:
            planned = self.answers.get(message.body.decode())
            if planned:
                answer = planned.pop(0)
                if isinstance(answer, Exception):
                    raise answer
                return answer
        return OrderlyStatus.SUCCESS

    def send(self, *bodies: str, queue: int = 0, tags: str = "") -> None:
        """Append messages to a queue and let consumers take them."""
        for body in bodies:
            self.store.put("t", body.encode(), queue_id=queue, tags=tags)
        self.scheduler.run_until_idle()

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        self.scheduler.advance(seconds)

    def end(self, place: int = 0) -> None:
        """End one listener."""
        self.calls.pop(place).end()
        self.scheduler.run_until_idle()

    def offsets(self, queue: int = 0) -> list[int]:
        """Offsets that listeners got of a queue, in order."""
        return [offset for _, place, offset, _ in self.seen if place == queue]

    def committed(self, queue: int = 0, group: str = "g") -> int | None:
        """Committed offset as the table has it."""
        return self.consumers.shared.offsets.get(group, "t", queue)

    def dead_letters(self, group: str = "g") -> list[dict[str, str]]:
        """Properties and body of a group's dead letters."""
        topic = self.store.topics.get(f"%DLQ%{group}")
        found = []
        for physical, size, _ in [] if topic is None else topic.queues[0].read(0, 1000):
            body, block = split(self.store.read(physical, size))
            found.append({**parse_properties(block), "body": bytes(body).decode()})
        return found

    def count(self, name: str, *labels: str) -> int:
        """Value of a counter."""
        return self.metrics.value(name, *labels)
