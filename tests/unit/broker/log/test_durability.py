"""The write side of a store: what it stops with, and who receives the reason."""

from __future__ import annotations

import pytest

from broker.errors import StoreError, StoreFailed
from broker.log.durability import all_durable
from broker.runtime.steps import run_now
from pyddmq.broker import Put
from pyddmq.testing import SimDisk
from tests.integration.store_tools import open_store

HOST = b"\x7f\0\0\1\0\0\0\0"


def test_first_failure_stops_every_writer_of_the_store() -> None:
    """Whoever waits for the flush receives it; a later failure changes nothing; appends are refused with the first."""
    store = open_store(SimDisk())
    topic = store.create_topic("t", 1)
    received: list[Exception | None] = []
    store.append([Put(topic, 0, b"x", b"")], born_ms=1, born_host=HOST, done=received.append)

    failed = store.writes.fail("testing", OSError(5, "first"))
    assert store.writes.fail("testing again", OSError(5, "second")) is failed

    assert received == [failed]
    assert store.failed is failed
    assert store.index.failed is not None, "the index writes no more"
    with pytest.raises(StoreFailed, match="first"):
        store.append([Put(topic, 0, b"y", b"")], born_ms=1, born_host=HOST)


def test_closed_store_has_nothing_to_wait_for() -> None:
    """A change in steps ends with a sentence instead of waiting for a flush that never comes."""
    store = open_store(SimDisk())
    store.close()
    with pytest.raises(StoreError, match="the store is closed"):
        run_now(all_durable(store.writes))
