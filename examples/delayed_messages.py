"""Messages for later: a delay level, timers, a loop, and cancels that are in time or too late.

Run it: ``python examples/delayed_messages.py``. It starts a node of its own and takes about five seconds.
"""

from __future__ import annotations

import time

from running_node import RunningNode, conclude

from pyddmq import CancelOutcome, Consumer, Producer

CONFIGURATION = """
topics:
  reminders: {queues: 2}
groups:
  - group: inbox
    topics: [{topic: reminders, actions: [PullServer]}]
"""
TOPIC = "reminders"


def send(producer: Producer) -> dict[str, list[float]]:
    """Send the messages; returns for each the moments (seconds since the epoch) at which it is due."""
    now = int(time.time())  # moments of loops are whole seconds
    producer.send(TOPIC, b"level", delay_level=1)  # level 1 is one second
    producer.send(TOPIC, b"timer by delay", delay_ms=1500)
    producer.send(TOPIC, b"timer by moment", deliver_at_ms=(now + 2) * 1000)
    producer.send_delay(TOPIC, b"loop", at=now + 1, every=3, times=2)
    return {"level": [now + 1], "timer by delay": [now + 1.5], "timer by moment": [now + 2], "loop": [now + 1, now + 4]}


def receive(node: RunningNode, count: int) -> list[tuple[str, float]]:
    """Consume this many messages, or until none came for five seconds; returns each with the time of its delivery."""
    came: list[tuple[str, float]] = []
    with Consumer(node.consumer, "inbox") as consumer:
        for message in consumer.messages(idle_ms=5_000):
            came.append((message.body.decode(), time.time()))
            print(f"{came[-1][0]!r} was delivered")
            if len(came) == count:
                break
    return came


def main() -> None:
    """Send, cancel one message in time and one too late, and check what was delivered and when."""
    with RunningNode(CONFIGURATION) as node, Producer(node.producer) as producer:
        due = send(producer)
        in_time = producer.send_delay(TOPIC, b"cancelled in time", at=time.time() + 3)
        late = producer.send_delay(TOPIC, b"cancelled too late", at=time.time())
        due["cancelled too late"] = [0.0]
        outcomes = [producer.cancel_delay(in_time, TOPIC)]
        came = receive(node, sum(len(moments) for moments in due.values()))
        outcomes.append(producer.cancel_delay(late, TOPIC))
    print(f"the cancels were answered {', '.join(outcomes)}")
    failures = []
    if outcomes != [CancelOutcome.CANCELLED, CancelOutcome.TOO_LATE]:
        failures.append(f"the cancels were answered {outcomes}")
    for name in {*due, *(name for name, _ in came)}:
        moments, times = due.get(name, []), [at for other, at in came if other == name]
        if len(moments) != len(times):
            failures.append(f"{name!r} was delivered {len(times)} times, not {len(moments)}")
        if any(at < moment for moment, at in zip(moments, times, strict=False)):
            failures.append(f"{name!r} was delivered early")
    conclude(failures)


if __name__ == "__main__":
    main()
