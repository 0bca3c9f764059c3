"""Targets `log`, `queue`, `index` and `state`: a store whose files are what the input says is opened and read.

Whatever stands in them: opening raises StoreError with a sentence, or nothing. What is handed out is a record whose sum
is right and that says of itself that it stands there. The store then takes a message, gives it back, and opens again.
"""

from __future__ import annotations

import functools
import struct

from broker.errors import DamagedRecord, RecordGone, StoreError
from broker.format.properties import parse_properties
from broker.format.record import CRC_BYTES, MAGICS, RECORD_OVERHEAD_BYTES, crc_property, split, sum_matches
from broker.format.record import queue_id as queue_id_of
from broker.format.record import queue_offset as queue_offset_of
from broker.query import by_key
from broker.queues.consume_queue import FILLER
from broker.runtime.sums import crc32
from broker.store import Store
from pyddmq.testing import SimDisk
from tests.fuzz.image import Image, disk_of, image_of, put
from tests.integration.store_tools import ROOT, SMALL, append, open_store

LOG = f"{ROOT}/commitlog"
QUEUE = f"{ROOT}/consumequeue/t/0/{0:020d}"
SEGMENT_BYTES = SMALL["segment_bytes"]

STATE_FILES = (
    f"{ROOT}/pyddmq/store.json",
    f"{ROOT}/pyddmq/checkpoint.json",
    f"{ROOT}/pyddmq/topics.json",
    f"{ROOT}/config/topics.json",
    f"{ROOT}/config/topics.json.bak",
    f"{ROOT}/config/consumerOffset.json",
    f"{ROOT}/checkpoint",
    f"{ROOT}/abort",
    f"{ROOT}/lock",
)

CLEAN, SUMS_RIGHT, PLACES_RIGHT, NO_QUEUES = 1, 2, 4, 8
"""Bits of an input's first byte: stopped in good order; sums and places are put right; queue files are missing."""


def _open(disk: SimDisk) -> Store:
    """Open with small index files: an input must not cost megabytes."""
    return open_store(disk, index_slots=8, index_entries=32)


@functools.cache
def image(clean: bool) -> Image:
    """Return the files of a small store: two topics, a batch, keys and properties, two segments."""
    disk = SimDisk()
    store = _open(disk)
    store.create_topic("t", 2)
    store.create_topic("other", 1)
    store.put("t", b"first", key="k-1", tags="red", properties={"colour": "blue"}, queue_id=0)
    append(store, b"a", b"bb", b"ccc", atomic=True)
    append(store, b"x" * 900, b"y" * 900, queue_id=1)
    store.flush()
    append(store, b"z" * 700, topic="other")
    append(store, b"w" * 900, b"v" * 300)
    store.flush()
    store.checkpoint()
    store.put("t", "grüße".encode(), queue_id=0)
    if clean:
        store.close()
    else:
        store.abandon()
        disk.kill()
    return image_of(disk, ROOT)


def log(data: bytes) -> None:
    """A commit log of these bytes: the first one has flags, the rest fills segments."""
    flags = data[0] if data else 0
    content = bytearray(data[1 : 1 + 3 * SEGMENT_BYTES])
    if flags & (SUMS_RIGHT | PLACES_RIGHT):
        _put_right(content, flags)
    files = dict(image(bool(flags & CLEAN)))
    for path in [each for each in files if each.startswith(LOG)]:
        del files[path]
    if flags & NO_QUEUES:
        files = {path: each for path, each in files.items() if "/consumequeue/" not in path}
    for start in range(0, max(1, len(content)), SEGMENT_BYTES):
        segment = bytes(content[start : start + SEGMENT_BYTES])
        files[f"{LOG}/{start:020d}"] = segment.ljust(SEGMENT_BYTES, b"\0")
    _open_and_read(disk_of(files))


def _put_right(content: bytearray, flags: int) -> None:
    """Give every record that its claimed size makes out its own place and a right sum: what is behind those is met."""
    at = 0
    while at + RECORD_OVERHEAD_BYTES <= len(content):
        size, magic = struct.unpack_from(">ii", content, at)
        end = at + size
        if magic not in MAGICS or size < RECORD_OVERHEAD_BYTES + CRC_BYTES or end > len(content):
            at += 4
            continue
        if flags & PLACES_RIGHT:
            struct.pack_into(">q", content, at + 28, at)
        if flags & SUMS_RIGHT:
            total = crc32(bytes(content[at : end - CRC_BYTES])) & 0x7FFF_FFFF
            content[end - CRC_BYTES : end] = crc_property(total)
        at = end


def queue(data: bytes) -> None:
    """A consume-queue file of these bytes; the first one has flags."""
    flags = data[0] if data else 0
    files = dict(image(bool(flags & CLEAN)))
    files[QUEUE] = data[1:]
    if not flags & NO_QUEUES:
        size = len(image(True)[QUEUE])
        files[QUEUE] = data[1 : 1 + size].ljust(size, b"\0")
    _open_and_read(disk_of(files))


def index_path() -> str:
    """Path of the small store's one index file."""
    (path,) = [each for each in image(True) if each.startswith(f"{ROOT}/index/")]
    return path


def index(data: bytes) -> None:
    """An index file of these bytes; whatever it says, a query finds the messages that have the key and no others."""
    flags = data[0] if data else 0
    path = index_path()
    files = dict(image(True))
    size = len(files[path])
    files[path] = data[1:] if flags & NO_QUEUES else data[1 : 1 + size].ljust(size, b"\0")
    disk = disk_of(files)
    if not flags & CLEAN:
        put(disk, f"{ROOT}/abort", b"")
    try:
        store = _open(disk)
    except StoreError as error:
        be_a_sentence(error)
        return
    query = by_key(store, "t", "k-1").run()
    found = [(message.topic, message.queue_id, message.offset) for message in query.found]
    assert found == [("t", 0, 0)] or (query.unsearched and not found), f"a query by key found {found}"
    assert not by_key(store, "t", "no-such-key").run().found
    store.close()


def state(data: bytes) -> None:
    """One of the small files with these bytes; the first byte says which, and how the store was stopped."""
    flags = data[0] if data else 0
    disk = disk_of(image(bool(flags & 128)))
    put(disk, STATE_FILES[(flags & 127) % len(STATE_FILES)], data[1:])
    _open_and_read(disk)


def _open_and_read(disk: SimDisk) -> None:
    try:
        store = _open(disk)
    except StoreError as error:
        be_a_sentence(error)
        return
    _read_all(store)
    store.create_topic("t", 1)
    position = append(store, b"after")[0]
    store.flush()
    assert store.failed is None, store.failed
    if not disk.exists(f"{ROOT}/abort"):
        raise AssertionError("an open store has its abort file")
    _expect(store, position.offset)
    store.close()
    again = _open(disk)
    assert again.recovery.clean, "a closed store was stopped in good order"
    _read_all(again)
    _expect(again, position.offset)
    again.close()


def _expect(store: Store, offset: int) -> None:
    [(physical, size, _)] = store.topics["t"].queues[0].read(offset, 1)
    assert bytes(split(store.read(physical, size))[0]) == b"after"


def _read_all(store: Store) -> None:
    for topic in store.topics.values():
        for each in topic.queues:
            offset = each.min_offset
            while offset < each.max_offset:
                units = each.read(offset, 256)
                assert units, "every offset of a queue has a unit"
                for place, (physical, size, code) in enumerate(units, offset):
                    if (physical, size, code) != FILLER:
                        _read_one(store, each.queue_id, place, physical, size)
                offset += len(units)


def _read_one(store: Store, queue_id: int, offset: int, physical: int, size: int) -> None:
    try:
        record = store.read(physical, size)
        _, block = split(record)
    except (DamagedRecord, RecordGone):
        return
    assert sum_matches(record), f"a record with a wrong sum is handed out at {physical}"
    assert (queue_id_of(record), queue_offset_of(record)) == (queue_id, offset), f"another place's record at {physical}"
    parse_properties(block)


def be_a_sentence(error: Exception) -> None:
    """Demand that an error says something."""
    assert len(str(error)) > 20, f"{error!r} is no sentence"
