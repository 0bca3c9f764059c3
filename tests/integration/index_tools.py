"""A store with a tiny index on a simulated disk, and a dictionary that says what a query must answer."""

from __future__ import annotations

from typing import Any

from broker.format.properties import encode_properties
from broker.log.put import Put
from broker.query import by_key, by_unique_key
from broker.store import Store
from pyddmq.testing import ManualClock, SimDisk
from tests.integration.store_tools import HOST, ROOT, open_store

FOLDER = f"{ROOT}/index"
REBUILT = "pyddmq_store_index_rebuilt_total"

Model = dict[str, list[int]]
"""Commit-log offsets by key, oldest first: what a query must answer."""


def opened(disk: SimDisk, **options: Any) -> Store:
    """Open a store with tiny index files: 11 entries over 7 slots."""
    return open_store(disk, **{"index_slots": 7, "index_entries": 12, **options})


def publish(store: Store, model: Model, *keys: str, topic: str = "t") -> int:
    """Append and flush one message whose KEYS are the words given; returns its commit-log offset."""
    target = store.create_topic(topic, 1)
    block = encode_properties({"KEYS": " ".join(keys)})
    [position] = store.append([Put(target, 0, b"body", block)], born_ms=1, born_host=HOST)
    store.flush()
    for key in {*keys, position.unique_key.decode()}:
        model.setdefault(key, []).append(position.physical)
    return position.physical


def found(store: Store, key: str, *, topic: str = "t", limit: int = 1000) -> list[int]:
    """What a query answers, oldest first."""
    search = by_key(store, topic, key, limit=limit).run()
    assert not search.unsearched
    return [message.physical for message in reversed(search.found)]


def check(store: Store, model: Model) -> None:
    """Every key of the model is answered as the model says, unique keys by their own query too."""
    for key, places in model.items():
        assert found(store, key) == places
        if len(key) == 32:
            assert [each.physical for each in by_unique_key(store, "t", key).run().found] == places[::-1]
    assert "t" not in store.topics or found(store, "never used") == []


def built(store: Store) -> Store:
    """Build the whole index."""
    while store.index.step():
        pass
    return store


def names(disk: SimDisk) -> list[str]:
    """Names of the index files."""
    return disk.list(FOLDER)


def stored(store: Store) -> Model:
    """What the store holds, read through its queue."""
    from broker.format.record import split
    from broker.index.keys import keys_of

    model: Model = {}
    for topic in store.topics.values():
        for physical, size, _ in topic.queues[0].read(0, 1 << 20):
            for key in keys_of(split(store.read(physical, size))[1]):
                model.setdefault(key.decode(), []).append(physical)
    return model


def filled(disk: SimDisk, clock: ManualClock, model: Model, count: int = 30, **options: Any) -> Store:
    """A store whose index has several files, closed and opened again."""
    store = opened(disk, clock=clock, **options)
    for number in range(count):
        publish(store, model, "abc"[number % 3], f"n{number}")
        clock.advance(1)
    store.close()
    return store
