"""Order by queue inside a Python program: queue selector, queue locks, an orderly consumer.

Two riders call a car, have it accepted and pay. Each rider's steps go to one queue by the hash of the name. Accepting
rider A's call fails twice: A's payment waits, and B, whose steps are in another queue, continues.

Run it: ``python examples/orderly_consumer.py``. It uses a store in a temporary folder.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Sequence

from running_node import conclude

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
STEPS = ("call", "accept", "pay")


async def consume(folder: str) -> list[str]:
    """Send both riders' steps, consume them, and return the steps in the order in which they were done."""
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
        for step in STEPS:
            for rider in ("A", "B"):
                put_selected(store, "rides", f"{rider} {step}".encode(), selector=select_by_hash, arg=rider)
        consumers.orderly("dispatch", {"rides": "*"}, listener, options=ConsumerOptions(reconsume_max=5)).start()
        await asyncio.wait_for(all_done, 30)
        # The consumer takes the listener's answer in the next turn of the loop.
        await asyncio.sleep(0)
        return done
    finally:
        consumers.close()
        store.close()


def main() -> None:
    """Run it, and check each rider's order and that B did not wait."""
    with tempfile.TemporaryDirectory(prefix="orderly-consumer-") as folder:
        done = asyncio.run(consume(folder))
    failures = [
        f"the steps of {rider} were done as {done}"
        for rider in ("A", "B")
        if [step for step in done if step.startswith(rider)] != [f"{rider} {step}" for step in STEPS]
    ]
    if done.index("B pay") > done.index("A accept"):
        failures.append(f"B waited for A: {done}")
    conclude(failures)


if __name__ == "__main__":
    main()
