"""What the runs of consumers inside a program share: a program whose listeners are told what to answer, and when."""

from __future__ import annotations

import contextlib
from typing import Any

from broker.consumer import ConcurrentConsumer, ConcurrentStatus, OrderlyConsumer
from broker.errors import DamagedRecord, DiskFull, RecordGone
from broker.format.record import split
from broker.log.put import Put
from tests.integration.store_tools import HOST
from tests.integration.waiting_tools import let_pass, make_durable
from tests.lifecycle.account import Account
from tests.lifecycle.scenario import START_MS, Moment, Scenario
from tests.lifecycle.walk import Walk
from tests.unit.consumer_world import World

GROUP = "g"


class Program(World):
    """A program whose listeners end when told to, and tell the account what they were handed."""

    def __init__(self, moment: Moment, *, held: bool) -> None:
        self.account: Account = moment.account
        self._moment = moment
        self.succeeded: set[bytes] = set()
        super().__init__(queues=2, held=held, disk=moment.disk, clock=moment.clock)

    def open(self) -> None:
        """Start the program; its store ends its turns as this run does."""
        super().open()
        self._moment.run(self.store, self.scheduler)

    def end(self, place: int = 0) -> None:
        """End one listener, and what that leads to in the log."""
        super().end(place)
        self.settle()

    def advance(self, seconds: float) -> None:
        """Let time pass, and what is on its way to the disk then be durable."""
        super().advance(seconds)
        self.settle()

    def concurrent(self, client: str = "a", *, group: str = "g", **options: Any) -> ConcurrentConsumer:
        """Start a concurrent consumer, and let what it dead-letters at once be durable."""
        consumer = super().concurrent(client, group=group, **options)
        self.settle()
        return consumer

    def orderly(
        self, client: str = "a", *, group: str = "g", topics: dict[str, str] | None = None, **options: Any
    ) -> OrderlyConsumer:
        """Start an orderly consumer, and let what it dead-letters at once be durable."""
        consumer = super().orderly(client, group=group, topics=topics, **options)
        self.settle()
        return consumer

    def settle(self) -> None:
        """Have durable, and told, all that is on its way to the disk."""
        while self.store.unsettled:
            let_pass(self.scheduler, lambda: not self.store.unsettled)
            self.scheduler.run_until_idle()

    def answer(self, batch: Any) -> Any:
        """Answer as planned."""
        for message in batch:
            self.account.hand(message.physical)
        answer = super().answer(batch)
        if answer is not ConcurrentStatus.RECONSUME_LATER:
            self.account.see(("success", batch[0].body), batch[0].body)
        return answer


class Listening(Scenario):
    """A run with such a program; its consumer reads topic `t`."""

    _walk: Walk
    _world: Program
    _known: dict[int, bytes]
    """What was read so far, by commit-log offset."""

    def _state(self, body: bytes) -> str:
        raise NotImplementedError

    def _send(self, body: bytes, *, block: bytes = b"", sys_flag: int = 0) -> None:
        store = self._world.store
        self.account.asked(body)
        put = Put(store.topics["t"], 0, body, block, sys_flag=sys_flag)
        store.append([put], born_ms=START_MS, born_host=HOST)
        make_durable(store, self._world.scheduler)
        self.account.answered(body)
        read(self._world, self._known, "t")
        self._walk.saw(body, "unfinished" if body in self._known.values() else "")
        self._world.scheduler.run_until_idle()

    def _handed(self, body: bytes) -> None:
        self._walk.saw(body, self._state(body))

    def _end(self, body: bytes, level: int = 0) -> None:
        """End the listener of a message: with a failure that asks for a delay level, or with success."""
        if level:
            self._world.answers[body.decode()] = [ConcurrentStatus.RECONSUME_LATER]
            self._world.delay_level = level
        self._world.end(self._running().index(body))

    def _fill(self) -> None:
        """Leave no byte free, in what is set aside for dead letters neither."""
        store = self._world.store
        store.create_topic("%DLQ%filler", 1, system=True)
        self.disk.capacity_bytes = 0
        for topic in ("other", "%DLQ%filler"):
            for size in (1 << 18, 1 << 14, 1 << 10, 1 << 6, 1):
                with contextlib.suppress(DiskFull):
                    while True:
                        store.append([Put(store.topics[topic], 0, bytes(size), b"")], born_ms=0, born_host=HOST)
                        store.flush()

    def _running(self) -> list[bytes]:
        return [call._work.args[0][0].body for call in self._world.calls]  # type: ignore[attr-defined]


def read(world: World, known: dict[Any, bytes], *names: str) -> None:
    """Learn what the records of these topics are (all that a message passes), by commit-log offset."""
    for name in names:
        topic = world.store.topics.get(name)
        for queue in topic.queues if topic else ():
            for physical, size, _ in queue.read(queue.min_offset, queue.max_offset - queue.min_offset):
                if physical not in known:
                    with contextlib.suppress(DamagedRecord, RecordGone):
                        known[physical] = bytes(split(world.store.read(physical, size))[0])
