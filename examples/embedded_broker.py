"""The broker alone, inside a Python program: no proxy, no network, no event loop.

Run it: ``python examples/embedded_broker.py``. It stores messages in a temporary folder, opens the store again, and
reads them back.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator

from running_node import conclude

from pyddmq.broker import FILLER, DamagedRecord, Store, Topic, open_store, parse_properties, split

STEPS = ["received", "checked", "granted"]


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


def main() -> None:
    """Store three messages of one key, open the store again, and check that they are in one queue and in order."""
    with tempfile.TemporaryDirectory(prefix="embedded-broker-") as folder:
        store = open_store(folder)
        try:
            topic = store.create_topic("permits", queues=4)
            for step in STEPS:
                position = store.put(topic, step.encode(), key="case-7", tags=step, properties={"by": "example"})
                print(f"stored in queue {position.queue_id} at offset {position.offset}")
        finally:
            store.close()
        store = open_store(folder)
        try:
            found = list(messages(store, store.create_topic("permits", queues=4)))
        finally:
            store.close()
    for queue_id, offset, body, properties in found:
        print(f"queue {queue_id} offset {offset}: {body.decode()} {properties}")
    failures = []
    if [body.decode() for _, _, body, _ in found] != STEPS or len({queue_id for queue_id, *_ in found}) != 1:
        failures.append("the messages are not all in one queue and in order")
    conclude(failures)


if __name__ == "__main__":
    main()
