"""A data directory with every kind of file in it, and ways to damage each: shared by the tests of check and repair."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable
from random import Random
from typing import NamedTuple

from broker.runtime.bundle import runtime_of
from broker.runtime.metrics import Metrics
from broker.runtime.steps import run_now
from broker.store import Store
from broker.tools.check import Severity, StoreCheck, StoreFinding
from proxy.cli.store.store_check_command import repair_data
from pyddmq.testing import ManualClock, ManualScheduler, SimDisk
from tests.integration.store_tools import ROOT, append, bodies, open_store
from upstream.embedded.queues import EmbeddedQueues
from upstream.progress.journal_format import BLOCK_HEADER, COPY, SNAPSHOT_END, read_block
from upstream.progress.progress import Progress
from upstream.tools.store_check import check_data

COUNT = 100
SEGMENTS = f"{ROOT}/commitlog"
UNITS = f"{ROOT}/consumequeue/t/0"
JOURNAL = f"{ROOT}/pyddmq/acks"


def open_progress(disk: SimDisk, store: Store, metrics: Metrics | None = None, *, root: str = ROOT) -> Progress:
    """Open the ack journal of an open store."""
    clock = ManualClock()
    return run_now(
        Progress.opening(
            root,
            queues=EmbeddedQueues(store),
            segment_bytes=8192,
            runtime=runtime_of(disk, clock, metrics=metrics or Metrics(), scheduler=ManualScheduler(clock)),
        )
    )


@functools.cache
def _made(*, closed: bool) -> SimDisk:
    return _make(closed=closed)


def make_data(*, closed: bool = True) -> SimDisk:
    """Return a fresh copy of the data directory, closed properly or killed."""
    return copy.deepcopy(_made(closed=closed))


def _make(*, closed: bool) -> SimDisk:
    """100 messages of topic t and a few of topic u, acknowledged in part by group g; closed properly, or killed."""
    disk = SimDisk()
    store = open_store(disk)
    store.create_topic("t", 1)
    store.create_topic("u", 2)
    progress = open_progress(disk, store)
    for number in range(COUNT):
        append(store, b"body %d" % number)
        if number % 20 == 0:
            append(store, b"other %d" % number, topic="u", queue_id=1)
        store.flush()
        if number == 50:
            store._checkpointer.write(last_record=store.commit.last_visible, store_ms=store.store_ms)
            progress.commit()
        tracker = progress.tracker("g", "t", 0, first_offset=lambda: 0)
        tracker.finish(number // 2)
        if number % 10 == 0:
            tracker.finish(number)
        progress.flush()
    if closed:
        progress.close()
        store.close()
    else:
        disk.kill()
    return disk


def wanted() -> dict[int, bytes | None]:
    """The messages of topic t."""
    return {number: b"body %d" % number for number in range(COUNT)}


def contents(disk: SimDisk, metrics: Metrics | None = None) -> dict[int, bytes | None]:
    """Open the store, with its journal, and read topic t."""
    store = open_store(disk, metrics=metrics)
    progress = open_progress(disk, store, metrics)
    found = bodies(store) if "t" in store.topics else {}
    progress.close()
    store.close()
    return found


def check(disk: SimDisk) -> list[StoreFinding]:
    """Run the whole check."""
    return list(check_data(StoreCheck(ROOT, disk, ManualClock())))


def troubles(disk: SimDisk) -> list[StoreFinding]:
    """Run the check and leave out what is merely worth knowing."""
    return [finding for finding in check(disk) if finding.severity is not Severity.NOTE]


def mend(disk: SimDisk) -> list[StoreFinding]:
    """Repair."""
    return repair_data(ROOT, disk=disk, clock=ManualClock(), random=Random(5))


def newest_journal(disk: SimDisk) -> str:
    """Path of the journal segment that counts."""
    return f"{JOURNAL}/{max(name for name in disk.list(JOURNAL) if name.endswith('.acks'))}"


def first_index(disk: SimDisk) -> str:
    """Path of the oldest index file."""
    return f"{ROOT}/index/{disk.list(f'{ROOT}/index')[0]}"


def flip(path: str | Callable[[SimDisk], str], at: int) -> Callable[[SimDisk], None]:
    """Flip one bit."""
    return lambda disk: disk.flip_bit(path if isinstance(path, str) else path(disk), at)


def cut(path: str, size: int) -> Callable[[SimDisk], None]:
    """Set a file's size."""
    return lambda disk: disk.open(path).truncate(size)


def lose(*paths: str) -> Callable[[SimDisk], None]:
    """Delete files."""

    def do(disk: SimDisk) -> None:
        for path in paths:
            disk.remove(path)

    return do


def put(path: str, data: bytes = b"what is this?") -> Callable[[SimDisk], None]:
    """Put a file of somebody else's there, or other bytes into one of ours."""

    def do(disk: SimDisk) -> None:
        file = disk.open(path, create=True)
        file.truncate(0)
        file.write(0, [data])

    return do


def spoil_all(name: str) -> Callable[[SimDisk], None]:
    """Damage a JSON file and all its copies."""

    def do(disk: SimDisk) -> None:
        for path in (f"config/{name}", f"config/{name}.bak", f"pyddmq/{name}"):
            put(f"{ROOT}/{path}", b"{")(disk)

    return do


def spoil_journal(disk: SimDisk) -> None:
    """Flip a bit in the middle of the journal segment that counts, behind its snapshot."""
    disk.flip_bit(newest_journal(disk), head_of_journal(disk)[-1][1] + BLOCK_HEADER.size + 1)


def lose_snapshot(disk: SimDisk) -> None:
    """Flip a bit in what closes either copy of the snapshot."""
    path = newest_journal(disk)
    for payload, _, start in head_of_journal(disk):
        if payload[0] in (SNAPSHOT_END, COPY):
            disk.flip_bit(path, start + BLOCK_HEADER.size + 1)


def head_of_journal(disk: SimDisk) -> list[tuple[bytes, int, int]]:
    """Payload, end and start of the blocks up to the end of the snapshot's second copy."""
    path = newest_journal(disk)
    number, data = int(path.rpartition("/")[2].split(".")[0]), disk.open(path).read(0, 1 << 20)
    end, blocks, payload = 0, [], b""
    while payload[:1] + payload[-1:] != bytes([COPY, True]):
        found = read_block(number, memoryview(data), end)
        assert found is not None
        payload, start = bytes(found), end
        end += BLOCK_HEADER.size + len(payload)
        blocks.append((payload, end, start))
    return blocks


class Damage(NamedTuple):
    """One way to damage a store.

    `kind`, `file`: what the check says; `starts`: a node starts on it as it is; `lost`: the messages of topic t that
    may be gone for good, at most; `metric`: what counts it when the store is opened and read ("": it costs nothing and
    nobody looks at it).
    """

    name: str
    do: Callable[[SimDisk], None]
    kind: str
    file: str
    starts: bool = True
    lost: range = range(0)
    metric: str = ""


SEGMENT_1 = f"{4096:020d}"
DAMAGES = [
    Damage(
        "record",
        flip(f"{SEGMENTS}/{SEGMENT_1}", 1000),
        "log_hole",
        f"commitlog/{SEGMENT_1}",
        lost=range(20, 60),
        metric="pyddmq_store_units_lost_total",
    ),
    Damage(
        "first record",
        flip(f"{SEGMENTS}/{0:020d}", 5),
        "log_hole",
        f"commitlog/{0:020d}",
        lost=range(1),
        metric="pyddmq_store_units_lost_total",
    ),
    Damage(
        "missing segment",
        lose(f"{SEGMENTS}/{SEGMENT_1}"),
        "segment_missing",
        f"commitlog/{SEGMENT_1}",
        lost=range(20, 60),
        metric="pyddmq_store_units_lost_total",
    ),
    Damage(
        "short segment",
        cut(f"{SEGMENTS}/{SEGMENT_1}", 2000),
        "segment_size",
        f"commitlog/{SEGMENT_1}",
        starts=False,
        lost=range(20, 60),
    ),
    Damage(
        "long segment", cut(f"{SEGMENTS}/{SEGMENT_1}", 5000), "segment_size", f"commitlog/{SEGMENT_1}", starts=False
    ),
    Damage(
        "empty segment",
        cut(f"{SEGMENTS}/{SEGMENT_1}", 0),
        "segment_size",
        f"commitlog/{SEGMENT_1}",
        starts=False,
        lost=range(20, 60),
    ),
    Damage(
        "misnamed segment",
        put(f"{SEGMENTS}/{'9' * 20}"),
        "segment_size",
        f"commitlog/{'9' * 20}",
        starts=False,
    ),
    Damage("foreign file in the log", put(f"{SEGMENTS}/notes.txt"), "foreign_file", "commitlog/notes.txt"),
    Damage(
        "unit",
        flip(f"{UNITS}/{160:020d}", 47),
        "unit_wrong",
        f"consumequeue/t/0/{160:020d}",
        metric="pyddmq_store_units_repaired_total",
    ),
    Damage(
        "missing queue file",
        lose(f"{UNITS}/{320:020d}"),
        "unit_missing",
        f"consumequeue/t/0/{320:020d}",
        metric="pyddmq_store_units_repaired_total",
    ),
    Damage(
        "short queue file",
        cut(f"{UNITS}/{320:020d}", 33),
        "queue_file_size",
        f"consumequeue/t/0/{320:020d}",
        metric="pyddmq_store_units_repaired_total",
    ),
    Damage("long queue file", cut(f"{UNITS}/{320:020d}", 999), "queue_file_size", f"consumequeue/t/0/{320:020d}"),
    Damage("foreign file in a queue", put(f"{UNITS}/core"), "foreign_file", "consumequeue/t/0/core"),
    Damage("foreign queue", put(f"{ROOT}/consumequeue/t/x/y"[:-2]), "foreign_file", "consumequeue/t/x"),
    Damage("RocketMQ's checkpoint", flip(f"{ROOT}/checkpoint", 99), "checkpoint_damaged", "checkpoint"),
    Damage("short RocketMQ's checkpoint", cut(f"{ROOT}/checkpoint", 8), "checkpoint_damaged", "checkpoint"),
    Damage("missing RocketMQ's checkpoint", lose(f"{ROOT}/checkpoint"), "checkpoint_missing", "checkpoint"),
    Damage(
        "checkpoint",
        flip(f"{ROOT}/pyddmq/checkpoint.json", 40),
        "checkpoint_json_damaged",
        "pyddmq/checkpoint.json",
        metric="pyddmq_store_files_damaged_total",
    ),
    Damage(
        "short checkpoint",
        cut(f"{ROOT}/pyddmq/checkpoint.json", 9),
        "checkpoint_json_damaged",
        "pyddmq/checkpoint.json",
        metric="pyddmq_store_files_damaged_total",
    ),
    Damage(
        "missing checkpoint",
        lose(f"{ROOT}/pyddmq/checkpoint.json"),
        "checkpoint_json_missing",
        "pyddmq/checkpoint.json",
    ),
    Damage("geometry", flip(f"{ROOT}/pyddmq/store.json", 33), "store_json_damaged", "pyddmq/store.json", starts=False),
    Damage(
        "empty geometry", cut(f"{ROOT}/pyddmq/store.json", 0), "store_json_damaged", "pyddmq/store.json", starts=False
    ),
    Damage("missing geometry", lose(f"{ROOT}/pyddmq/store.json"), "store_json_missing", "pyddmq/store.json"),
    Damage(
        "topics",
        put(f"{ROOT}/config/topics.json", b"{"),
        "file_damaged",
        "config/topics.json",
        metric="pyddmq_store_files_damaged_total",
    ),
    Damage(
        "empty topics",
        cut(f"{ROOT}/config/topics.json", 0),
        "file_damaged",
        "config/topics.json",
        metric="pyddmq_store_files_damaged_total",
    ),
    Damage("missing topics", lose(f"{ROOT}/config/topics.json"), "file_missing", "config/topics.json"),
    Damage(
        "topics' twin",
        flip(f"{ROOT}/pyddmq/topics.json", 60),
        "twin_damaged",
        "pyddmq/topics.json",
        metric="pyddmq_store_files_damaged_total",
    ),
    Damage("topics' backup", cut(f"{ROOT}/config/topics.json.bak", 5), "backup_damaged", "config/topics.json.bak"),
    Damage(
        "topics and all copies",
        spoil_all("topics.json"),
        "file_damaged",
        "config/topics.json",
        starts=False,
    ),
    Damage(
        "offsets",
        put(f"{ROOT}/config/consumerOffset.json", b"]"),
        "file_damaged",
        "config/consumerOffset.json",
        metric="pyddmq_store_files_damaged_total",
    ),
    Damage("missing offsets", lose(f"{ROOT}/config/consumerOffset.json"), "file_missing", "config/consumerOffset.json"),
    Damage(
        "offsets' twin",
        flip(f"{ROOT}/pyddmq/consumerOffset.json", 50),
        "twin_damaged",
        "pyddmq/consumerOffset.json",
        metric="pyddmq_store_files_damaged_total",
    ),
    Damage(
        "offsets and all copies",
        spoil_all("consumerOffset.json"),
        "file_damaged",
        "config/consumerOffset.json",
        starts=False,
    ),
    Damage("journal", spoil_journal, "journal_damaged", "pyddmq/acks", metric="pyddmq_ack_journal_damage_total"),
    Damage("foreign file in the journal", put(f"{JOURNAL}/x"), "foreign_file", "pyddmq/acks/x"),
    Damage("index slot", flip(first_index, 50), "index_damaged", "index/"),
    Damage("index header", flip(first_index, 20), "index_damaged", "index/", metric="pyddmq_store_index_rebuilt_total"),
    Damage(
        "index entry",
        flip(first_index, 40 + 16 + 20 * 5 + 7),
        "index_damaged",
        "index/",
    ),
    Damage(
        "short index file",
        lambda disk: cut(first_index(disk), 99)(disk),
        "index_damaged",
        "index/",
        metric="pyddmq_store_index_rebuilt_total",
    ),
    Damage(
        "missing index file",
        lambda disk: disk.remove(first_index(disk)),
        "index_missing",
        "index/",
        metric="pyddmq_store_index_rebuilt_total",
    ),
    Damage("index state", flip(f"{ROOT}/pyddmq/index.json", 30), "sealed_damaged", "pyddmq/index.json"),
    Damage("foreign file in the index", put(f"{ROOT}/index/x"), "foreign_file", "index/x"),
    Damage("other sealed file", put(f"{ROOT}/pyddmq/other.json"), "sealed_damaged", "pyddmq/other.json"),
    Damage("foreign file at the root", put(f"{ROOT}/README"), "foreign_file", "README"),
]
