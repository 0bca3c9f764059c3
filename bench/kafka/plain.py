"""`python -m bench.kafka.plain ADDRESS TOPIC COUNT BATCH`: a plain loop over a confluent-kafka consumer.

It takes BATCH records at a time, looks at each and commits every 100 ms. Says `ready` when it has partitions, `seen`
after COUNT records and `committed` after the last commit; ends when its stdin does.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from typing import Any

COMMIT_SECONDS = 0.1


def main(arguments: Sequence[str]) -> None:
    """Consume."""
    import confluent_kafka

    address, topic, count, batch = arguments[0], arguments[1], int(arguments[2]), int(arguments[3])
    made: Any = confluent_kafka.Consumer
    consumer = made(
        {
            "bootstrap.servers": address,
            "group.id": f"plain-{topic}",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "partition.assignment.strategy": "cooperative-sticky",
        }
    )
    consumer.subscribe([topic])
    while not consumer.assignment():
        consumer.poll(0.1)
    print("ready", flush=True)
    seen, next_commit = 0, 0.0
    while seen < count:
        if batch > 1:
            messages = consumer.consume(batch, 0.5)
        else:
            message = consumer.poll(0.5)
            messages = [] if message is None else [message]
        for message in messages:
            if message.error() is None:
                message.value(), message.key(), message.headers()
                seen += 1
        if seen and time.monotonic() > next_commit:
            consumer.commit(asynchronous=True)
            next_commit = time.monotonic() + COMMIT_SECONDS
    print("seen", flush=True)
    consumer.commit(asynchronous=False)
    print("committed", flush=True)
    sys.stdin.read()
    consumer.close()


if __name__ == "__main__":
    main(sys.argv[1:])
