"""Recovery reads no more than what was written after the checkpoint, measured in bytes at the disk seam.

Constants: the log's files are looked at up to the end of what is preallocated (at most two files), and each queue's
last unit and its record are compared with the checkpoint.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from structlog.testing import capture_logs

from broker.features import ALL
from broker.runtime.bundle import runtime_of
from broker.store import Store
from pyddmq.testing import ManualClock, PowerCut, SimDisk
from tests.integration.store_tools import ROOT, append, bodies, open_store
from tests.unit.progress_world import Node

SEGMENT_BYTES = 1 << 16
QUEUES = 4
SIZES: dict[str, Any] = {"segment_bytes": SEGMENT_BYTES, "queue_file_units": 512}
PROBE_BYTES = 4096


def written(disk: SimDisk, clock: ManualClock, *, before: int, after: int = 0) -> tuple[Store, int]:
    """A store with messages before and after its last checkpoint; and how many bytes of log came after it."""
    store = open_store(disk, clock=clock, **SIZES)
    store.create_topic("t", QUEUES)
    fill(store, before)
    clock.advance(11)
    store.checkpoint()
    checkpointed = store.end
    fill(store, after)
    return store, store.end - checkpointed


def fill(store: Store, count: int) -> None:
    """Append messages of 200 bytes to all queues in turn."""
    for number in range(count):
        append(store, b"%200d" % number, queue_id=number % QUEUES)
        store.flush()


def reading(disk: SimDisk, clock: ManualClock) -> tuple[Store, int, int]:
    """Open the store again; return it with the bytes read of its log and of its queue files."""
    disk.read_bytes.clear()
    store = open_store(disk, clock=clock, **SIZES)
    log, queues = (
        sum(count for path, count in disk.read_bytes.items() if path.startswith(f"{ROOT}/{folder}/"))
        for folder in ("commitlog", "consumequeue")
    )
    return store, log, queues


@pytest.mark.parametrize("before", [8, 80, 2_000])
def test_clean_stop_reads_a_constant(before: int) -> None:
    """However large the store: a probe behind the end, and one unit and one record per queue."""
    disk, clock = SimDisk(), ManualClock()
    written(disk, clock, before=before, after=before)[0].close()
    store, log, queues = reading(disk, clock)
    assert store.recovery.records == 0
    assert log <= PROBE_BYTES * (QUEUES + 2)
    assert queues == 20 * QUEUES


@pytest.mark.parametrize("before", [0, 2_000])
@pytest.mark.parametrize("after", [0, 1, 40, 1_500])
def test_kill_reads_what_was_written_since_the_checkpoint(before: int, after: int) -> None:
    """N bytes of log, the preallocated rest, and the probes; nothing of the queue files that is made anew."""
    disk, clock = SimDisk(), ManualClock()
    _, new_bytes = written(disk, clock, before=before, after=after)
    disk.kill()
    store, log, queues = reading(disk, clock)
    assert store.recovery.records == after
    # The search for a record behind the end passes over the rest that the scan's window held already.
    assert log <= new_bytes + 2 * SEGMENT_BYTES + PROBE_BYTES * (QUEUES + 2)
    assert queues <= 20 * QUEUES
    assert len(bodies(store)) == (before + after) / QUEUES or after == 1


def test_large_records_are_read_once() -> None:
    """A record that is larger than the scan's window does not make the bound larger."""
    disk, clock = SimDisk(), ManualClock()
    sizes: dict[str, Any] = {"segment_bytes": 1 << 23, "queue_file_units": 512}
    store = open_store(disk, clock=clock, **sizes)
    store.create_topic("t", 1)
    for _ in range(7):
        append(store, bytes(1_000_000))
        store.flush()
    end = store.end
    disk.kill()
    disk.read_bytes.clear()
    store = open_store(disk, clock=clock, **sizes)
    assert store.recovery.records == 7
    assert disk.read_bytes[f"{ROOT}/commitlog/{0:020d}"] <= end + 2 * ((1 << 23) - end) + PROBE_BYTES


def test_missing_checkpoint_reads_the_whole_log_and_says_so() -> None:
    """The log line has the reason; the bound is the size of the log."""
    disk, clock = SimDisk(), ManualClock()
    store, _ = written(disk, clock, before=2_000)
    end = store.end
    store.close()
    disk.remove(f"{ROOT}/pyddmq/checkpoint.json")
    with capture_logs() as logs:
        store, log, _ = reading(disk, clock)
    assert end <= log <= end + 2 * SEGMENT_BYTES + PROBE_BYTES
    [line] = [each for each in logs if each["event"] == "store_recovering"]
    assert line["whole_log"] == "the checkpoint is missing"
    assert line["bytes_to_scan"] >= end
    assert store.recovery.whole_log == "the checkpoint is missing"


def test_checkpoint_of_another_log_is_not_believed() -> None:
    """It must end at its last record; the log line names what does not fit."""
    disk, clock = SimDisk(), ManualClock()
    store, _ = written(disk, clock, before=100)
    physical = store.commit.last_visible
    store.close()
    disk.flip_bit(f"{ROOT}/commitlog/{physical // SEGMENT_BYTES * SEGMENT_BYTES:020d}", physical % SEGMENT_BYTES + 100)
    store, _, _ = reading(disk, clock)
    assert store.recovery.whole_log == "the checkpoint does not match the log"


def derived_files(disk: SimDisk) -> list[str]:
    """All files that can be made anew, twins included."""
    names = ["checkpoint", "abort", "pyddmq/checkpoint.json", "pyddmq/topics.json", "config/topics.json"]
    names += ["config/topics.json.bak"]
    for queue in range(QUEUES):
        folder = f"consumequeue/t/{queue}"
        names += [f"{folder}/{name}" for name in disk.list(f"{ROOT}/{folder}")]
    return [f"{ROOT}/{name}" for name in names if disk.exists(f"{ROOT}/{name}")]


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 2**32), clean=st.booleans())
def test_any_subset_of_derived_files_may_be_lost(seed: int, clean: bool) -> None:
    """Queue files, checkpoints, topic file and twins: whatever is deleted, the content is the same."""
    random, disk, clock = Random(seed), SimDisk(), ManualClock()
    sizes: dict[str, Any] = {"segment_bytes": 8192, "queue_file_units": 8}
    store = open_store(disk, clock=clock, **sizes)
    store.create_topic("t", QUEUES)
    fill(store, 60)
    clock.advance(11)
    store.checkpoint()
    fill(store, random.randrange(30))
    wanted = [bodies(store, queue_id=queue) for queue in range(QUEUES)]
    if clean:
        store.close()
    else:
        disk.kill()
    for path in derived_files(disk):
        if random.random() < 0.4:
            disk.remove(path)
    for _ in range(2):
        store = open_store(disk, clock=clock, **sizes)
        assert [bodies(store, queue_id=queue) for queue in range(QUEUES)] == wanted
        store.close()


class RecordingDisk(SimDisk):
    """Keeps the order of changes as (operation, path below the root)."""

    def __init__(self) -> None:
        super().__init__()
        self.changes: list[tuple[str, str]] = []

    def step(self, operation: str, path: str, partly: Callable[[], None] | None = None) -> None:
        super().step(operation, path, partly)
        self.changes.append((operation, path.removeprefix(f"{ROOT}/")))


def order_of(changes: list[tuple[str, str]], *wanted: tuple[str, str]) -> Iterator[int]:
    """Place of the last change of each kind whose path begins so."""
    for operation, start in wanted:
        yield max(place for place, (done, path) in enumerate(changes) if done == operation and path.startswith(start))


def test_checkpoint_vouches_only_for_what_is_durable() -> None:
    """Log, then queue files, then our checkpoint, then RocketMQ's, and at a clean stop `abort` goes last."""
    disk, clock = RecordingDisk(), ManualClock()
    store, _ = written(disk, clock, before=20, after=20)
    disk.changes.clear()
    append(store, b"last")
    store.close()
    places = list(
        order_of(
            disk.changes,
            ("write", "commitlog/"),
            ("sync", "commitlog/"),
            ("write", "consumequeue/"),
            ("sync", "consumequeue/"),
            ("replace", "pyddmq/checkpoint.json"),
            ("write", "checkpoint"),
            ("sync", "checkpoint"),
            ("remove", "abort"),
        )
    )
    assert places == sorted(places)


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 2**32), step=st.integers(0, 60), power=st.booleans())
def test_recovery_broken_off_anywhere_loses_nothing(seed: int, step: int, power: bool) -> None:
    """Between any two steps, or by a stop within one: the next opening finds the same, and `abort` is still there."""
    random, disk, clock = Random(seed), SimDisk(), ManualClock()
    store, _ = written(disk, clock, before=random.randrange(60), after=random.randrange(600))
    wanted = [bodies(store, queue_id=queue) for queue in range(QUEUES)]
    disk.kill()
    steps = Store.opening(ROOT, options=store.options, features=ALL, runtime=runtime_of(disk, clock, random=Random(1)))
    if seed % 2:
        finished = any(next(steps, None) is None for _ in range(step % 8 + 1))
        steps.close()
        assert finished or disk.locks == set()
    else:
        disk.stop_after(step % 20)
        try:
            for _ in steps:
                pass
        except PowerCut:
            pass
    if power:
        disk.crash(random)
    else:
        disk.kill()
    assert disk.exists(f"{ROOT}/abort")
    again = open_store(disk, clock=clock, **SIZES)
    assert [bodies(again, queue_id=queue) for queue in range(QUEUES)] == wanted
    # And what the queue files hold after a clean stop is what the log holds: nothing old stands behind their ends.
    again.close()
    final = open_store(disk, clock=clock, **SIZES)
    assert [bodies(final, queue_id=queue) for queue in range(QUEUES)] == wanted


def test_units_of_lost_records_are_found_and_removed() -> None:
    """A queue file ahead of its checkpoint, then a lost tail of the log: old units go before the log forgets why."""
    disk, clock = SimDisk(), ManualClock()
    store, _ = written(disk, clock, before=40, after=40)
    for queue in store.topics["t"].queues:
        queue.write_tail()
        queue.sync()
    last = store.commit.last_visible
    disk.kill()
    disk.flip_bit(f"{ROOT}/commitlog/{last // SEGMENT_BYTES * SEGMENT_BYTES:020d}", last % SEGMENT_BYTES + 100)
    store = open_store(disk, clock=clock, **SIZES)
    assert store.recovery.truncated_to == last
    queue = store.topics["t"].queues[79 % QUEUES]
    assert queue.max_offset == 19
    store.close()
    file = disk.open(f"{ROOT}/consumequeue/t/{79 % QUEUES}/{0:020d}")
    assert file.read(18 * 20, 20).strip(b"\x00")
    assert not file.read(19 * 20, 512 * 20).strip(b"\x00")


@pytest.mark.parametrize("acks", [100, 5_000])
def test_ack_journal_is_read_from_its_snapshot_on(acks: int) -> None:
    """However many acks there were: one file of the journal, its snapshot twice and at most a segment of entries."""
    segment_bytes = 4096
    disk = SimDisk()
    node = Node(disk, segment_bytes=segment_bytes)
    node.publish(acks)
    for offset in range(1, acks, 2):
        node.ack(offset)
    disk.kill()
    disk.read_bytes.clear()
    again = Node(disk, segment_bytes=segment_bytes)
    read = sum(count for path, count in disk.read_bytes.items() if path.startswith("/data/pyddmq/acks/"))
    snapshot_bytes = acks // 8 + 512
    assert read <= 2 * snapshot_bytes + segment_bytes
    assert [offset for offset in range(200) if again.tracker().is_finished(offset)] == [*range(1, min(acks, 200), 2)]
