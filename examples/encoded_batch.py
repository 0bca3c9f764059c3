"""Encode a batch as RocketMQ's client does, put it into a store as one unit, and read its members back.

Run it from a checkout: ``.venv/bin/python examples/encoded_batch.py [DIRECTORY]``.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from random import SystemRandom

# For a checkout; an installed pyddmq needs no path.
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

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


def main(folder: str) -> int:
    """Put a batch, print where its members are, show a refusal; returns how many members there were."""
    clock = SystemClock()
    store = open_store(folder, clock=clock)
    try:
        store.create_topic("permits", queues=4)
        keys = UniqueKeys(store.options.store_host, SystemRandom())
        messages = [
            BatchMessage("permits", f"case-{number} received".encode(), {"KEYS": f"case-{number}", "TAGS": "received"})
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
            print(f"nothing of it is stored: {refusal}")
        return len(result.positions)
    finally:
        store.close()


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp(prefix="encoded-batch-"))
