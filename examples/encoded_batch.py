"""A batch encoded as RocketMQ's client does it, stored as one unit, and its members read back.

Run it: ``python examples/encoded_batch.py``. It uses a store in a temporary folder.
"""

from __future__ import annotations

import tempfile
from random import SystemRandom

from running_node import conclude

from pyddmq.broker import (
    BatchMessage,
    MessageRefused,
    SystemClock,
    UniqueKeys,
    decode_batch,
    encode_batch,
    open_store,
    put_batch,
)


def main() -> None:
    """Store a batch, and check where its members are and that a damaged batch is refused as a whole."""
    clock = SystemClock()
    refused = False
    with tempfile.TemporaryDirectory(prefix="encoded-batch-") as folder:
        store = open_store(folder, clock=clock)
        try:
            store.create_topic("permits", queues=4)
            keys = UniqueKeys(store.options.store_host, SystemRandom())
            messages = [
                BatchMessage("permits", f"case-{number}".encode(), {"KEYS": f"case-{number}", "TAGS": "received"})
                for number in range(3)
            ]
            encoded = encode_batch(messages, unique_keys=keys.take(len(messages), clock.wall_ms()))
            print(f"{len(encoded)} bytes hold {len(decode_batch(encoded))} members")
            result = put_batch(store, "permits", encoded, queue_id=1, born_ms=clock.wall_ms())
            for position, message_id in zip(result.positions, result.offset_message_ids.split(","), strict=True):
                print(f"queue {position.queue_id} offset {position.offset}: {message_id}")
            try:
                put_batch(store, "permits", encoded + b"\x00", born_ms=clock.wall_ms())
            except MessageRefused as refusal:
                print(f"refused, nothing is stored: {refusal}")
                refused = True
        finally:
            store.close()
    failures = []
    if [(each.queue_id, each.offset) for each in result.positions] != [(1, 0), (1, 1), (1, 2)]:
        failures.append(f"the members are not adjacent: {result.positions}")
    if not refused:
        failures.append("a batch with a byte too many was not refused")
    conclude(failures)


if __name__ == "__main__":
    main()
