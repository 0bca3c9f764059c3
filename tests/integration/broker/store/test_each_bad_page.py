"""Each page of each file of a store that works goes bad, and no message is lost but one whose record is on the page."""

from __future__ import annotations

from typing import Any

import pytest

from broker.errors import DamagedRecord
from broker.format.record import split
from broker.store import Store
from pyddmq.testing import ManualClock, SimDisk
from tests.integration.store_tools import ROOT, open_store

PAGE_BYTES = 4096
BEFORE, AFTER, LATER = 230, 200, 20
"""Messages of an earlier process, of the one that meets the bad page, and those that come after it went bad."""
SIZES: dict[str, Any] = {"segment_bytes": 1 << 18, "queue_file_units": 1000, "index_slots": 64, "index_entries": 1000}


def _body(number: int) -> bytes:
    return b"body %d " % number * 3


def _fill(store: Store, count: int) -> None:
    first = store.topics["t"].queues[0].max_offset
    for number in range(first, first + count):
        store.put("t", _body(number), key=f"k{number}")


def _working(disk: SimDisk, clock: ManualClock) -> Store:
    """A store with messages of an earlier process and of its own, all of their units in files."""
    store = open_store(disk, clock=clock, **SIZES)
    store.create_topic("t", 1)
    _fill(store, BEFORE)
    while store.index.step():
        pass
    store.close()
    store = open_store(disk, clock=clock, **SIZES)
    _fill(store, AFTER)
    clock.advance(11)
    store.checkpoint()
    return store


def _paths(disk: SimDisk, folder: str) -> list[str]:
    paths = [f"{folder}/{name}" for name in disk.list(folder)]
    return [path for each in paths for path in (_paths(disk, each) if disk.is_folder(each) else [each])]


def _pages() -> list[tuple[str, int]]:
    disk = SimDisk()
    _working(disk, ManualClock()).close()
    return [
        (path, page)
        for path in _paths(disk, ROOT)
        if path not in (f"{ROOT}/pyddmq/store.json", f"{ROOT}/lock")
        for content in [disk.open(path).read(0, 1 << 30)]
        for page in range(-(-len(content) // PAGE_BYTES))
        if content[page * PAGE_BYTES : (page + 1) * PAGE_BYTES].strip(b"\x00")
    ]


def _lost(store: Store) -> set[int]:
    """Offsets whose message cannot be had."""
    lost = set()
    queue = store.topics["t"].queues[0]
    # In short reads, as consumers make them: what an earlier process wrote is checked along with what it is read with.
    units = [unit for offset in range(0, queue.max_offset, 10) for unit in queue.read(offset, 10)]
    for offset, (physical, size, _) in enumerate(units):
        try:
            if bytes(split(store.read(physical, size))[0]) != _body(offset):
                lost.add(offset)
        except DamagedRecord:
            lost.add(offset)
    return lost


def _on_page(store: Store, path: str, page: int) -> set[int]:
    """Offsets whose record has a byte on a page of a log file."""
    if "/commitlog/" not in path:
        return set()
    start = int(path.rpartition("/")[2]) + page * PAGE_BYTES
    units = enumerate(store.topics["t"].queues[0].read(0, BEFORE + AFTER))
    return {offset for offset, (at, size, _) in units if at < start + PAGE_BYTES and start < at + size}


@pytest.mark.parametrize(("path", "page"), _pages())
def test_bad_page_costs_the_records_on_it_alone(path: str, page: int) -> None:
    """Read at once, after more messages were written, and after a restart: what is whole in the log is found."""
    disk, clock = SimDisk(), ManualClock()
    store = _working(disk, clock)
    expected = _on_page(store, path, page)
    disk.bad_pages[path] = {page}
    assert _lost(store) <= expected
    try:
        _fill(store, LATER)
        clock.advance(11)
        store.checkpoint()
    except Exception:
        # The page that the log goes on in: the write side stops, and says so.
        assert store.failed is not None
        assert "/commitlog/" in path or "/pyddmq/" in path
    assert _lost(store) <= expected
    if store.failed is None:
        store.close()
    disk.kill()
    store = open_store(disk, clock=clock, **SIZES)
    assert store.topics["t"].queues[0].max_offset >= BEFORE + AFTER - len(expected)
    assert _lost(store) <= expected
