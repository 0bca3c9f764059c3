"""What a store holds at the end of a run, as the checkers want it."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterator

from broker.format.properties import parse_properties
from broker.format.record import split, store_timestamp
from broker.queues.consume_queue import FILLER_SIZE, ConsumeQueue
from broker.queues.topics import retry_topic
from broker.store import Store
from tests.simulation.expired import ExpiredRecords, Record
from tests.simulation.facts import DeadLetter, Place, Stored
from tests.simulation.halves import TOPIC as PAID
from tests.simulation.loops import TOPIC as LATER
from tests.simulation.loops import Came

QID_PREFIX = "pyddmq_broker-0_"


def stored_records(store: Store, topics: tuple[str, ...], expired: ExpiredRecords | None = None) -> Iterator[Stored]:
    """Yield every record of some topics, as the queues name them, also those that retention has deleted."""
    for name, queue_id, offset, physical, _, body, properties in _records(store, topics, expired):
        place = Place(name, f"{QID_PREFIX}{queue_id}", offset)
        yield Stored(
            place, physical, int(properties["uid"]), properties.get("KEYS", ""), properties.get("TAGS", ""), body
        )


def stored_retries(store: Store, group: str, expired: ExpiredRecords) -> Iterator[tuple[Place, int]]:
    """Yield place and message of every record of a group's retry topic."""
    name = retry_topic(group)
    for _, queue_id, offset, _, _, _, properties in _records(store, (name,) if name in store.topics else (), expired):
        yield Place(properties["RETRY_TOPIC"], f"{QID_PREFIX}retry_{queue_id}", offset), int(properties["uid"])


def dead_letters(store: Store, expired: ExpiredRecords | None = None) -> Iterator[DeadLetter]:
    """Yield every record of every dead-letter topic, but for those of occurrences."""
    for properties, body in _dead(store, expired):
        if "uid" in properties:
            yield _letter(properties, body, int(properties["uid"]))


def dead_occurrences(
    store: Store, uid_of: Callable[[str, bytes], int], expired: ExpiredRecords | None = None
) -> Iterator[DeadLetter]:
    """Yield the dead letters of occurrences of loops; `uid_of` numbers their ids."""
    for properties, body in _dead(store, expired):
        if "uid" not in properties:
            yield _letter(properties, body, uid_of(properties["KEYS"], body))


def _dead(store: Store, expired: ExpiredRecords | None) -> Iterator[tuple[dict[str, str], bytes]]:
    names = tuple(name for name in store.topics if name.startswith("%DLQ%"))
    for *_, body, properties in _records(store, names, expired):
        yield properties, body


def _letter(properties: dict[str, str], body: bytes, uid: int) -> DeadLetter:
    origin = Place(
        properties["DLQ_ORIGIN_TOPIC"],
        f"{QID_PREFIX}{properties['DLQ_ORIGIN_QUEUE']}",
        int(properties["DLQ_ORIGIN_OFFSET"]),
    )
    return DeadLetter(
        properties["DLQ_GROUP"], origin, uid, properties["DLQ_REASON"], int(properties["DLQ_ATTEMPTS"]), body
    )


def stored_occurrences(
    store: Store, uid_of: Callable[[str, bytes], int], expired: ExpiredRecords | None = None
) -> Iterator[Stored]:
    """Yield every delivery of a loop as a message; `uid_of` numbers its id."""
    for name, queue_id, offset, physical, _, body, properties in _records(store, (LATER,), expired):
        place, key = Place(name, f"{QID_PREFIX}{queue_id}", offset), properties["KEYS"]
        yield Stored(place, physical, uid_of(key, body), key, properties.get("TAGS", ""), body)


def occurrences(store: Store, expired: ExpiredRecords | None = None) -> list[Came]:
    """Every delivery of a loop, in the order of its queue."""
    return [
        Came(properties["KEYS"], physical, store_timestamp(record))
        for _, _, _, physical, record, _, properties in _records(store, (LATER,), expired)
    ]


def stored_halves(store: Store, expired: ExpiredRecords | None = None) -> Counter[str]:
    """Names of the committed transactions, and how often each is there."""
    return Counter(properties["name"] for *_, properties in _records(store, (PAID,), expired))


def _records(
    store: Store, topics: tuple[str, ...], expired: ExpiredRecords | None = None
) -> Iterator[tuple[str, int, int, int, memoryview, bytes, dict[str, str]]]:
    for name in topics:
        for queue in store.topics[name].queues:
            gone = [] if expired is None else expired.of(name, queue.queue_id, below=queue.min_offset)
            for each in itertools.chain(gone, kept(store, queue, expired)):
                body, properties = split(each.data)
                yield *each, bytes(body), parse_properties(bytes(properties))


def kept(store: Store, queue: ConsumeQueue, expired: ExpiredRecords | None = None) -> Iterator[Record]:
    """Yield the records that a queue names, also those that went with a page of the log."""
    units = queue.read(queue.min_offset, queue.max_offset - queue.min_offset)
    for offset, (physical, size, _) in zip(itertools.count(queue.min_offset), units, strict=False):
        lost = None if expired is None else expired.lost(queue.topic, queue.queue_id, offset)
        if lost is not None:
            yield lost
            continue
        # A filler: a record that was never acknowledged was torn, and one written with it was not (D3). Had it been
        # acknowledged, the ledger would miss it.
        if size != FILLER_SIZE:
            yield Record(queue.topic, queue.queue_id, offset, physical, store.read(physical, size))


def ends(store: Store) -> dict[tuple[str, str], int]:
    """Return the next offset of every queue by (topic, qid)."""
    return {
        (topic.name, f"{QID_PREFIX}{queue.queue_id}"): queue.max_offset
        for topic in store.topics.values()
        for queue in topic.queues
    }
