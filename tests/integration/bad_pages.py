"""A real disk with pages that it does not give out: EIO by `read`, SIGBUS where they are mapped and looked at.

`python -m tests.integration.bad_pages FOLDER SCENARIO` runs one scenario, so that a SIGBUS ends that process alone.
"""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import sys
import tempfile
from collections.abc import Callable, Sequence
from random import Random

from broker.errors import DamagedRecord
from broker.features import ALL
from broker.format.record import split
from broker.options import StoreOptions
from broker.query import by_key
from broker.queues.consume_queue import FILLER
from broker.runtime.disk import RealDisk, RealFile
from broker.runtime.metrics import Metrics
from broker.runtime.rate_limited_log import RateLimitedLog
from broker.runtime.seams import Buffer
from broker.runtime.steps import run_now
from broker.runtime.store_metrics import DAMAGED, FILES_DAMAGED, HOLES, UNREADABLE
from broker.scheduled.timer.timers import Timers
from broker.store import Store
from broker.tools.readonly import ReadOnlyStore
from pyddmq.testing import ManualClock, ManualScheduler

PAGE = 4096
COUNT = 120
SEGMENT_BYTES = 1 << 18
BODY_BYTES = 3000
_MAP_FIXED = 0x10


class BadFile(RealFile):
    """A file with bad pages."""

    def __init__(self, file: RealFile, bad: set[int]) -> None:
        super().__init__(file.descriptor, file.path)
        self.bad = bad

    def read(self, offset: int, size: int) -> bytes:
        """Read, or EIO where a bad page is met."""
        data = super().read(offset, size)
        if any(page in self.bad for page in range(offset // PAGE, -(-(offset + len(data)) // PAGE))):
            raise OSError(errno.EIO, "Input/output error", self.path)
        return data

    def write(self, offset: int, buffers: Sequence[Buffer]) -> None:
        """Write; a page that is written whole is good again, and a part of a bad one cannot be written."""
        end = offset + sum(map(len, buffers))
        for page in sorted(self.bad):
            if offset < (page + 1) * PAGE and page * PAGE < end:
                if not (offset <= page * PAGE and (page + 1) * PAGE <= end):
                    raise OSError(errno.EIO, "Input/output error", self.path)
                self.bad.discard(page)
        super().write(offset, buffers)

    def view(self) -> memoryview:
        """Map; a look at a bad page is a SIGBUS, as of any page behind the end of a mapped file."""
        size = self.size()
        if not size:
            return memoryview(b"")
        mapped = mmap.mmap(self.descriptor, 0)
        libc = ctypes.CDLL(None, use_errno=True)
        libc.mmap.restype = ctypes.c_void_p
        libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
        begin = ctypes.addressof(ctypes.c_char.from_buffer(mapped))
        for page in self.bad:
            with tempfile.TemporaryFile() as empty:
                at = libc.mmap(
                    begin + page * PAGE, PAGE, mmap.PROT_READ, mmap.MAP_SHARED | _MAP_FIXED, empty.fileno(), 0
                )
                assert at == begin + page * PAGE, os.strerror(ctypes.get_errno())
        return memoryview(mapped).toreadonly()


class BadDisk(RealDisk):
    """A disk some of whose pages are bad, by path."""

    def __init__(self) -> None:
        super().__init__()
        self.bad: dict[str, set[int]] = {}

    def open(self, path: str, *, create: bool = False) -> RealFile:
        """Open; files without bad pages are ordinary ones."""
        file = super().open(path, create=create)
        return BadFile(file, self.bad[path]) if path in self.bad else file


def opened(root: str, disk: RealDisk, metrics: Metrics | None = None, clock: ManualClock | None = None) -> Store:
    """Open the store."""
    options = StoreOptions(
        segment_bytes=SEGMENT_BYTES,
        queue_file_units=1000,
        index_slots=64,
        index_entries=1000,
        message_bytes_max=1 << 17,
    )
    return Store.open(
        root,
        options=options,
        features=ALL,
        disk=disk,
        clock=clock or ManualClock(),
        random=Random(1),
        metrics=metrics or Metrics(),
    )


def body(number: int) -> bytes:
    """The body of a message."""
    return b"%06d" % number * (BODY_BYTES // 6)


def fill(root: str, *, clean: bool = True) -> list[tuple[int, int]]:
    """Make a store of 120 messages; returns commit-log offset and size of each."""
    store = opened(root, RealDisk())
    store.create_topic("t", 1)
    for number in range(COUNT):
        store.put("t", body(number), key=f"k{number}")
    places = [unit[:2] for unit in store.topics["t"].queues[0].read(0, COUNT)]
    while store.index.step():
        pass
    if clean:
        store.close()
    else:
        store.abandon()
    return places


def hit(places: list[tuple[int, int]], segment: int, pages: set[int]) -> set[int]:
    """Numbers of the messages that lie on pages of a segment."""
    found = set()
    for number, (physical, size) in enumerate(places):
        begin = physical - segment * SEGMENT_BYTES
        if 0 <= begin < SEGMENT_BYTES and any(
            begin < (page + 1) * PAGE and page * PAGE < begin + size for page in pages
        ):
            found.add(number)
    return found


def read_all(read: Callable[[int, int], memoryview], places: list[tuple[int, int]]) -> set[int]:
    """Read all messages; returns those that are damaged."""
    lost = set()
    for number, (physical, size) in enumerate(places):
        try:
            assert bytes(split(read(physical, size))[0]) == body(number)
        except DamagedRecord:
            lost.add(number)
    return lost


def reading(root: str) -> None:
    """A store that was closed: a record on a bad page is damaged, its neighbours are read."""
    places = fill(root)
    disk, metrics = BadDisk(), Metrics()
    disk.bad = {f"{root}/commitlog/{0:020d}": {3, 20}, f"{root}/commitlog/{SEGMENT_BYTES:020d}": {0}}
    expected = hit(places, 0, {3, 20}) | hit(places, 1, {0})
    assert 3 <= len(expected) <= 9, expected
    for _ in range(2):
        store = opened(root, disk, metrics)
        assert read_all(store.read, places) == expected
        for number in range(COUNT):
            try:
                [found] = store.locate([places[number]])
                assert bytes(found[0][found[1] : found[1] + 6]) == b"%06d" % number
                assert number not in expected
            except DamagedRecord:
                assert number in expected
        store.put("t", b"goes on")
        store.checkpoint()
        store.close()
    assert metrics.value(DAMAGED) == 2 * len(expected)
    assert metrics.value(UNREADABLE, "commitlog") >= 3
    reader = ReadOnlyStore.open(root, disk=disk, clock=ManualClock())
    assert read_all(reader.read, places) == expected


def recovering(root: str) -> None:
    """A store that was killed, read whole: a hole, all behind it is there, and bad pages behind the end are mended."""
    places = fill(root, clean=False)
    os.remove(f"{root}/pyddmq/checkpoint.json")
    disk, metrics = BadDisk(), Metrics()
    last = places[-1][0] // SEGMENT_BYTES
    behind = (places[-1][0] + places[-1][1]) % SEGMENT_BYTES // PAGE + 2
    disk.bad = {
        f"{root}/commitlog/{0:020d}": {7},
        f"{root}/commitlog/{last * SEGMENT_BYTES:020d}": {behind},
    }
    expected = hit(places, 0, {7})
    store = opened(root, disk, metrics)
    assert len(store.recovery.holes) == metrics.value(HOLES) == 1
    assert store.topics["t"].queues[0].max_offset == COUNT
    assert read_all(store.read, places) == expected
    for number in range(COUNT, COUNT + 20):
        store.put("t", body(number))
    assert store.failed is None
    store.close()
    assert disk.bad[f"{root}/commitlog/{0:020d}"] == {7}, "what cannot be read is not written over"
    store = opened(root, disk)
    units = store.topics["t"].queues[0].read(0, COUNT + 20)
    assert read_all(store.read, [unit[:2] for unit in units]) - expected == set()
    store.close()


def last_of_a_queue(root: str) -> None:
    """The last records of a queue are lost: the next one takes no offset that a message had, now and after restarts."""
    for behind in (False, True):
        folder = f"{root}/{behind}"
        places = fill(folder)
        if behind:
            store = opened(folder, RealDisk())
            store.create_topic("other", 1)
            store.put("other", body(0))
            store.close()
        disk = BadDisk()
        number, at = divmod(places[-1][0], SEGMENT_BYTES)
        page = (at + places[-1][1] // 2) // PAGE
        disk.bad = {f"{folder}/commitlog/{number * SEGMENT_BYTES:020d}": {page}}
        lost = hit(places, number, {page})
        assert COUNT - 1 in lost
        for turn in range(3):
            store = opened(folder, disk)
            queue = store.topics["t"].queues[0]
            units = queue.read(0, queue.max_offset)
            assert len(units) == COUNT + turn, (behind, turn, len(units))
            assert {each for each, unit in enumerate(units) if unit == FILLER} == lost
            assert read_all(store.read, [unit[:2] for unit in units[: min(lost)]]) == set()
            store.put("t", b"goes on")
            assert queue.max_offset == COUNT + turn + 1
            if turn == 1:
                store.abandon()
            else:
                store.close()


def walking(root: str) -> None:
    """Whoever walks the log passes over it: decisions, the index made anew, a reader's records, a check."""
    places = fill(root)
    for name in os.listdir(f"{root}/index"):
        os.remove(f"{root}/index/{name}")
    disk = BadDisk()
    disk.bad = {f"{root}/commitlog/{0:020d}": {9, 10}}
    expected = hit(places, 0, {9, 10})
    store = opened(root, disk)
    assert [each for step in store.decisions(0) for each in step.decisions] == []
    while store.index.step():
        pass
    for number in range(COUNT):
        found = by_key(store, "t", f"k{number}").run().found
        assert bool(found) != (number in expected), number
    store.close()
    reader = ReadOnlyStore.open(root, disk=disk, clock=ManualClock())
    assert len(list(reader.records())) == COUNT - len(expected)


def queues(root: str) -> None:
    """A bad page of a consume queue costs nothing: its units are rebuilt from the log."""
    places = fill(root)
    disk, metrics = BadDisk(), Metrics()
    disk.bad = {f"{root}/consumequeue/t/0/{0:020d}": {0}}
    store = opened(root, disk, metrics)
    queue = store.topics["t"].queues[0]
    assert [unit[:2] for unit in queue.read(0, COUNT)] == places
    assert read_all(store.read, places) == set()
    assert metrics.value(UNREADABLE, "consumequeue") >= 1
    store.put("t", b"goes on")
    assert store.failed is None, store.failed
    store.close()


def indexes(root: str) -> None:
    """A bad page of the index costs a search nothing but time."""
    fill(root)
    [name] = os.listdir(f"{root}/index")
    for page in range(3):
        disk = BadDisk()
        disk.bad = {f"{root}/index/{name}": {page}}
        store = opened(root, disk)
        while store.index.step():
            pass
        query = by_key(store, "t", "k5").run()
        assert query.found or query.unsearched
        store.put("t", b"goes on", key="new")
        assert store.failed is None, store.failed
        store.close()


def small_files(root: str) -> None:
    """A bad page under a small file is damage: its copy, or the log, says it."""
    fill(root)
    for name in ("config/topics.json", "pyddmq/topics.json", "pyddmq/checkpoint.json", "checkpoint"):
        disk, metrics = BadDisk(), Metrics()
        disk.bad = {f"{root}/{name}": {0}}
        store = opened(root, disk, metrics)
        assert list(store.topics) == ["t"]
        if name != "checkpoint":
            assert metrics.value(FILES_DAMAGED, name) == 1
        disk.bad.clear()
        store.close()


def timers(root: str) -> None:
    """A bad page of the timer log or the wheel: both are rebuilt from the log, and what waits comes."""
    clock = ManualClock()
    store, made, scheduler = with_timers(root, RealDisk(), clock)
    for number in range(300):
        store.put("t", body(number)[:100], delay_ms=60_000 + number)
    scheduler.run_until_idle()
    scheduler.advance(5)
    made.close()
    store.close()
    for file, page in (("timerlog/" + "0" * 20, 0), ("timerlog/" + "0" * 20, 1), ("timerwheel", 2)):
        disk = BadDisk()
        disk.bad = {f"{root}/{file}": {page}}
        store, made, _ = with_timers(root, disk, clock)
        assert made.pending + made.entering.lag == 300, (file, page, made.pending)
        made.close()
        store.close()
    store, made, scheduler = with_timers(root, RealDisk(), clock)
    made.start()
    scheduler.advance(120)
    assert store.topics["t"].queues[0].max_offset == 300


def with_timers(root: str, disk: RealDisk, clock: ManualClock) -> tuple[Store, Timers, ManualScheduler]:
    """Open the store with its timers."""
    scheduler, metrics = ManualScheduler(clock), Metrics()
    store = opened(root, disk, metrics, clock)
    store.create_topic("t", 1)
    steps = Timers.opening(
        store, disk=disk, clock=clock, scheduler=scheduler, metrics=metrics, limited_log=RateLimitedLog(clock)
    )
    return store, run_now(steps), scheduler


SCENARIOS = {
    each.__name__: each
    for each in (reading, recovering, last_of_a_queue, walking, queues, indexes, small_files, timers)
}


def reported(root: str, lost: str) -> None:
    """Read a store whose disk gives out all but these messages: twice, and once more after a kill."""
    expected = {int(number) for number in lost.split(",")}
    for clean in (True, False, True):
        store = opened(root, RealDisk())
        units = store.topics["t"].queues[0].read(0, COUNT)
        assert read_all(store.read, [unit[:2] for unit in units]) == expected
        if clean:
            store.close()
        else:
            store.abandon()


if __name__ == "__main__":
    if sys.argv[2] == "told":
        reported(sys.argv[1], sys.argv[3])
    else:
        SCENARIOS[sys.argv[2]](sys.argv[1])
    print("passed")
