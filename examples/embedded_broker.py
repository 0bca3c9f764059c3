"""Use the broker alone, inside a Python program: no proxy, no network, no event loop.

Run it from a checkout: ``.venv/bin/python examples/embedded_broker.py [DIRECTORY]``. Run twice with one directory, it
finds the messages of the first run.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

# For a checkout; an installed pyddmq needs no path.
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from pyddmq.broker import FILLER, DamagedRecord, Store, Topic, open_store, parse_properties, split


def messages(store: Store, topic: Topic) -> Iterator[tuple[int, int, bytes, dict[str, str]]]:
    """Yield queue, offset, body and properties of everything kept, in batches of 32 units per queue."""
    for queue in topic.queues:
        offset = queue.min_offset
        while units := queue.read(offset, 32):
            for place, unit in enumerate(units):
                if unit == FILLER:
                    continue  # its record was lost to damage, which opening the store reported
                physical, size, _tags_code = unit
                try:
                    body, properties = split(store.read(physical, size))
                except DamagedRecord as damage:
                    print(f"skipped: {damage}")
                    continue
                yield queue.queue_id, offset + place, bytes(body), parse_properties(properties)
            offset += len(units)


def main(folder: str) -> int:
    """Send a few messages, read everything back, print it; returns how many there were."""
    store = open_store(folder)
    try:
        topic = store.create_topic("permits", queues=4)
        for step in ("received", "checked", "granted"):
            position = store.put(topic, f"case-7 {step}".encode(), key="case-7", tags=step, properties={"by": "demo"})
            print(f"stored in queue {position.queue_id} at offset {position.offset}")
        count = 0
        for queue_id, offset, body, properties in messages(store, topic):
            count += 1
            print(f"queue {queue_id} offset {offset}: {body.decode()} {properties}")
        return count
    finally:
        store.close()


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp(prefix="embedded-broker-"))
