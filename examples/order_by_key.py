"""Order by key and order by queue, side by side: what waits while one message hangs.

Riders A and B call a car, have it accepted, and pay. All six messages are in one queue, and two groups consume it. A's
accept gets no answer at first, so the node hands it out again after the subscription's `timeout`. Group `by-key` orders
by message key: only A waits. Group `by-queue` orders by queue: A and B wait.

Run it: ``python examples/order_by_key.py``. It starts a node of its own.
"""

from __future__ import annotations

from running_node import RunningNode, conclude

from pyddmq import Consumer, Producer

CONFIGURATION = """
topics:
  rides: {queues: 1}
groups:
  - group: by-key
    topics: [{topic: rides, orderKey: KEY, timeout: 1000}]
  - group: by-queue
    topics: [{topic: rides, orderKey: QID, timeout: 1000}]
"""
STEPS = [f"{rider} {step}" for step in ("call", "accept", "pay") for rider in ("A", "B")]


def consume(node: RunningNode, group: str) -> list[str]:
    """Consume all steps, without an answer to the first delivery of A's accept; returns them as they were done."""
    done: list[str] = []
    hung = False
    with Consumer(node.consumer, group) as consumer:
        for message in consumer.messages(idle_ms=10_000):
            step = message.body.decode()
            if step == "A accept" and not hung:
                hung = True
                consumer.skip(message)  # no answer
                print(f"{group}: {step} hangs")
                continue
            print(f"{group}: {step} done")
            done.append(step)
            if len(done) == len(STEPS):
                break
    return done


def main() -> None:
    """Run both groups, and check what each kept in order and what it held back."""
    with RunningNode(CONFIGURATION) as node:
        with Producer(node.producer) as producer:
            for step in STEPS:
                producer.send("rides", step.encode(), key=step.split()[0])
        by_key, by_queue = consume(node, "by-key"), consume(node, "by-queue")
    failures = []
    for rider in "AB":
        wanted = [step for step in STEPS if step.startswith(rider)]
        if [step for step in by_key if step.startswith(rider)] != wanted:
            failures.append(f"by key the steps of {rider} came as {by_key}")
    if by_key[:4] != ["A call", "B call", "B accept", "B pay"]:
        failures.append(f"by key B waited for A: {by_key}")
    if by_queue != STEPS:
        failures.append(f"by queue the steps came as {by_queue}")
    conclude(failures)


if __name__ == "__main__":
    main()
