"""Send in order and consume in order inside a Python program: queue selector, queue locks, an orderly consumer.

Run it from a checkout: ``.venv/bin/python examples/orderly_consumer.py [DIRECTORY]``. Two riders call a car, have it
accepted and pay. Each rider's steps go to one queue by the hash of the name. Accepting rider A's call fails twice:
A's payment waits, and B, whose steps lie in another queue, goes on.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

# For a checkout; an installed pyddmq needs no path.
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from pyddmq.broker import (
    ConsumedMessage,
    ConsumerOptions,
    Consumers,
    Metrics,
    OrderlyContext,
    OrderlyStatus,
    RealDisk,
    SystemClock,
    open_store,
    put_selected,
    select_by_hash,
)

FAILURES = 2


async def main(folder: str) -> list[str]:
    """Send both riders' steps, consume them, and return what was done, in order."""
    disk, clock, metrics = RealDisk(), SystemClock(), Metrics()
    store = open_store(folder, disk=disk, clock=clock, metrics=metrics)
    loop = asyncio.get_running_loop()
    consumers = Consumers.open(store, disk=disk, clock=clock, scheduler=loop, metrics=metrics)
    done: list[str] = []
    all_done = loop.create_future()

    def listener(messages: Sequence[ConsumedMessage], context: OrderlyContext) -> OrderlyStatus:
        for message in messages:
            step = message.body.decode()
            if step == "A accept" and message.reconsume_times < FAILURES:
                print(f"{step}: failed, attempt {message.reconsume_times + 1}")
                context.suspend_ms = 50
                return OrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT
            print(f"{step}: done, queue {message.queue_id}")
            done.append(step)
        if len(done) == 6 and not all_done.done():
            all_done.set_result(None)
        return OrderlyStatus.SUCCESS

    try:
        store.create_topic("rides", queues=2)
        for step in ("call", "accept", "pay"):
            for rider in ("A", "B"):
                put_selected(store, "rides", f"{rider} {step}".encode(), selector=select_by_hash, arg=rider)
        consumers.orderly("dispatch", {"rides": "*"}, listener, options=ConsumerOptions(reconsume_max=5)).start()
        await asyncio.wait_for(all_done, 30)
        # The listener has answered by the next turn of the loop.
        await asyncio.sleep(0)
        return done
    finally:
        consumers.close()
        store.close()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp(prefix="orderly-consumer-")))
