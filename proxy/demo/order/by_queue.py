"""Order by queue lock, in this process: an embedded broker on a temporary store, and an orderly consumer.

Each rider's steps go to one queue by the hash of the name. The listener of A's accept hangs for a while and fails;
its queue pauses and it comes again, in place. B goes on because B lies in another queue: whoever shared A's would wait.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from random import SystemRandom
from threading import Event

from broker.consumer import ConsumedMessage, ConsumerOptions, Consumers, OrderlyContext, OrderlyStatus
from broker.consumer.running import ExecutorRunner
from broker.features import ALL
from broker.options import StoreOptions
from broker.runtime.disk import RealDisk
from broker.runtime.metrics import Metrics
from broker.runtime.seams import Clock
from broker.selectors import put_selected, select_by_hash
from broker.store import Store
from proxy.demo.order.story import Story, all_steps

TOPIC = "rides"
GROUP = "dispatch"
QUEUES = 2
SEGMENT_BYTES = 1 << 20
HANG_SECONDS = 2.0
SUSPEND_MS = 100
LIMIT_SECONDS = 30.0
"""When it is over in any case."""


class ByQueue:
    """One run.

    Attributes:
        story: What happened.
    """

    def __init__(self, *, clock: Clock) -> None:
        self._clock = clock
        self.story = Story(clock)
        self._over = Event()

    def execute(self) -> None:
        """Send, work, and wait until all is done or the time is up.

        Raises:
            OSError, StoreError: The temporary store cannot be written.
        """
        with tempfile.TemporaryDirectory(prefix="pyddmq-demo-") as folder:
            asyncio.run(self._run(folder))

    async def _run(self, folder: str) -> None:
        loop = asyncio.get_running_loop()
        disk, metrics = RealDisk(), Metrics()
        options = StoreOptions(segment_bytes=SEGMENT_BYTES)
        store = Store.open(
            folder, options=options, features=ALL, disk=disk, clock=self._clock, random=SystemRandom(), metrics=metrics
        )
        with ThreadPoolExecutor(QUEUES) as pool:
            runner = ExecutorRunner(pool, loop.call_soon_threadsafe)
            consumers = Consumers.open(store, disk=disk, clock=self._clock, scheduler=loop, metrics=metrics, run=runner)
            try:
                store.create_topic(TOPIC, QUEUES)
                self.story.begin()
                for rider, step in all_steps():
                    put_selected(store, TOPIC, f"{rider} {step}".encode(), selector=select_by_hash, arg=rider)
                consumers.orderly(GROUP, {TOPIC: "*"}, self._listen, options=ConsumerOptions(reconsume_max=3)).start()
                await loop.run_in_executor(None, self.story.finished.wait, LIMIT_SECONDS)
            finally:
                self._over.set()
                consumers.close()
                store.close()

    def _listen(self, messages: Sequence[ConsumedMessage], context: OrderlyContext) -> OrderlyStatus:
        for message in messages:
            rider, _, step = message.body.decode().partition(" ")
            name = f"queue {message.queue_id}"
            if self.story.take(rider, step, name):
                self._over.wait(HANG_SECONDS)
                context.suspend_ms = SUSPEND_MS
                return OrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT
            self.story.done(rider, step, name)
        return OrderlyStatus.SUCCESS
