"""A copy of a live store holds all that was answered before it began, and its parts belong together."""

from __future__ import annotations

import json
import os
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.errors import StoreUnreadable
from broker.runtime.disk import RealDisk
from broker.runtime.disks.read_only_disk import ReadingDisk
from broker.runtime.metrics import Metrics
from broker.runtime.sealed_file import SealedFile
from broker.runtime.seams import Disk
from broker.tools.check import Severity, StoreCheck
from pyddmq.testing import ManualClock, SimDisk
from tests.integration.damage import check, make_data, open_progress, troubles, wanted
from tests.integration.store_tools import ROOT, BusyDisk, append, bodies, open_store
from upstream.tools.backup import Backup, BackupError, restore
from upstream.tools.store_check import check_data

COPY = "/copy"
BACK = "/back"


def back_up(disk: SimDisk, source: Disk | None = None) -> dict[str, object]:
    """Copy ROOT to COPY."""
    return Backup(ROOT, COPY, source=source or disk, disk=disk, clock=ManualClock()).make()


@pytest.mark.parametrize("closed", [True, False])
def test_copy_and_restore_hold_everything(*, closed: bool) -> None:
    """Messages, topics, offsets and acks; the check of the copy is clean; the source is not changed."""
    disk = make_data(closed=closed)
    before = disk.contents()
    manifest = back_up(disk)
    assert {path: content for path, content in disk.contents().items() if path.startswith(ROOT)} == before
    found = list(check_data(StoreCheck(COPY, disk, ManualClock())))
    assert [finding for finding in found if finding.severity is not Severity.NOTE] == []
    assert restore(COPY, BACK, disk=disk, clock=ManualClock()) == manifest
    metrics = Metrics()
    store = open_store(disk, root=BACK, metrics=metrics)
    assert bodies(store) == wanted()
    tracker = open_progress(disk, store, metrics, root=BACK).tracker("g", "t", 0, first_offset=lambda: 0)
    assert [offset for offset in range(100) if tracker.is_finished(offset)] == [*range(50), 50, 60, 70, 80, 90]
    assert not store.recovery.queues_rebuilt


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_copy_of_a_store_at_work_keeps_what_was_answered_before(seed: int) -> None:
    """The owner publishes, acks, commits, checkpoints and rolls its journal between any two steps of the copy."""
    random, disk, clock = Random(seed), SimDisk(), ManualClock()
    store = open_store(disk, clock=clock)
    store.create_topic("t", 1)
    progress = open_progress(disk, store)
    tracker = progress.tracker("g", "t", 0, first_offset=lambda: 0)
    queue = store.topics["t"].queues[0]

    def work(most: int = 6) -> None:
        for _ in range(random.randint(0, most)):
            kind = random.random()
            if kind < 0.5:
                append(store, *[b"body %d" % (queue.max_offset + place) for place in range(random.randint(1, 3))][:1])
                store.flush()
            elif kind < 0.9 and queue.max_offset:
                for _ in range(random.randint(1, 20)):
                    tracker.finish(random.randrange(max(tracker.watermark - 3, 0), queue.max_offset))
                progress.flush()
            elif kind < 0.95:
                progress.commit()
            else:
                clock.advance(11)
                store.checkpoint()

    work(200)
    published, acked = queue.max_offset, {offset for offset in range(queue.max_offset) if tracker.is_finished(offset)}

    back_up(disk, BusyDisk(disk, work))
    assert not [each for each in check_data(StoreCheck(COPY, disk, clock)) if each.severity is not Severity.NOTE]
    restore(COPY, BACK, disk=disk, clock=ManualClock())
    metrics = Metrics()
    copied = open_store(disk, root=BACK, clock=clock, metrics=metrics)
    found = bodies(copied)
    assert len(found) >= published
    assert found == {number: b"body %d" % number for number in range(len(found))}
    again = open_progress(disk, copied, metrics, root=BACK).tracker("g", "t", 0, first_offset=lambda: 0)
    assert all(again.is_finished(offset) for offset in acked)
    assert again.high <= len(found)
    assert all(tracker.is_finished(offset) for offset in range(len(found)) if again.is_finished(offset))
    assert metrics.value("pyddmq_offsets_foreign_total") == 0
    assert metrics.value("pyddmq_acks_unvouched_total") == 0


def test_topics_that_are_made_between_two_files_hide_none_of_before() -> None:
    """The file of topics and its twin are of one version: else it would be another program's, which deleted topics."""
    disk = SimDisk()
    store = open_store(disk)
    store.create_topic("t", 1)
    store.topic_changes.open("opened", 1)
    append(store, b"answered", topic="opened")
    store.flush()

    class Growing(ReadingDisk):
        """Has two topics made when the twin is about to be read the first time."""

        def open(self, path: str, *, create: bool = False):  # type: ignore[no-untyped-def]
            if path == f"{ROOT}/pyddmq/topics.json" and "later" not in store.topics:
                store.create_topic("later", 1)
                store.create_topic("last", 1)
            return super().open(path, create=create)

    back_up(disk, Growing(disk))
    restore(COPY, BACK, disk=disk, clock=ManualClock())
    assert bodies(open_store(disk, root=BACK), topic="opened") == {0: b"answered"}


def test_copy_has_what_consumers_and_sinks_keep_in_folders_of_their_own() -> None:
    """Without it a broadcasting consumer would begin anew, and a sink would not know how far its files are right."""
    disk = make_data()
    paths = ["pyddmq/broadcast/g@c.json", "pyddmq/sinks/file.0123.json"]
    for path in paths:
        disk.make_folder(f"{ROOT}/{path.rpartition('/')[0]}")
        SealedFile(disk, f"{ROOT}/{path}").save({"of": path})
    back_up(disk)
    restore(COPY, BACK, disk=disk, clock=ManualClock())
    assert [SealedFile(disk, f"{BACK}/{path}").load() for path in paths] == [{"of": path} for path in paths]


def test_copy_goes_on_when_retention_deletes_beneath() -> None:
    """What is deleted meanwhile is not in the copy, and all the rest is."""
    disk = make_data()

    class Deleting(ReadingDisk):
        """Deletes the oldest log file when the second is about to be opened."""

        def open(self, path: str, *, create: bool = False):  # type: ignore[no-untyped-def]
            if path == f"{ROOT}/commitlog/{0:020d}" and disk.exists(f"{COPY}/commitlog"):
                disk.remove(path)
            return super().open(path, create=create)

    back_up(disk, Deleting(disk))
    store = open_store(disk, root=COPY)
    found = bodies(store)
    assert 0 not in found
    assert found[99] == b"body 99"


def test_target_that_is_not_empty_is_refused() -> None:
    """Nothing is ever overwritten, by a backup or by a restore."""
    disk = make_data()
    back_up(disk)
    before = disk.operations
    with pytest.raises(BackupError, match="not empty"):
        back_up(disk)
    with pytest.raises(BackupError, match="not empty"):
        restore(COPY, ROOT, disk=disk, clock=ManualClock())
    assert disk.operations == before


def test_folder_without_store_is_told() -> None:
    """And nothing is made."""
    disk = SimDisk()
    with pytest.raises(StoreUnreadable, match="no store"):
        back_up(disk)
    assert not disk.exists(COPY)


def test_backup_that_is_not_whole_is_refused() -> None:
    """Without its manifest, with a missing file, and with a flipped bit anywhere."""
    disk = make_data()
    back_up(disk)
    segment = f"{COPY}/commitlog/{4096:020d}"
    disk.flip_bit(segment, 77)
    with pytest.raises(BackupError, match=r"its checksum differs from backup\.json"):
        restore(COPY, "/r1", disk=disk, clock=ManualClock())
    disk.flip_bit(segment, 77)
    disk.remove(segment)
    with pytest.raises(BackupError, match="is missing"):
        restore(COPY, "/r2", disk=disk, clock=ManualClock())
    disk.remove(f"{COPY}/backup.json")
    with pytest.raises(BackupError, match="is not a complete backup"):
        restore(COPY, "/r3", disk=disk, clock=ManualClock())


@pytest.mark.parametrize("name", ["../outside", "/etc/passwd", "a/../../b"])
def test_manifest_cannot_lead_out_of_the_folder(name: str) -> None:
    """A restore writes below its target and nowhere else."""
    disk = make_data()
    back_up(disk)
    path = f"{COPY}/backup.json"
    manifest = json.loads(disk.open(path).read(0, 1 << 20))
    manifest["files"] = {name: {"bytes": 0, "sha256": ""}}
    disk.open(path).truncate(0)
    disk.open(path).write(0, [json.dumps(manifest).encode()])
    with pytest.raises(BackupError, match="not a store file"):
        restore(COPY, BACK, disk=disk, clock=ManualClock())


def test_damage_of_the_source_is_copied_as_it_is() -> None:
    """A backup of a damaged store keeps all that is whole."""
    disk = make_data()
    disk.flip_bit(f"{ROOT}/commitlog/{4096:020d}", 1000)
    back_up(disk)
    assert [
        each.kind for each in check_data(StoreCheck(COPY, disk, ManualClock())) if each.severity is Severity.DAMAGE
    ] == ["log_hole"]
    assert "log_hole" in [each.kind for each in troubles(disk)]
    assert check(disk)


def test_closed_log_files_can_be_linked(tmp_path: Path) -> None:
    """Linked files take no space; the last one, which is still written to, is a copy."""
    root = str(tmp_path / "data")
    store = open_store(RealDisk(), root=root)
    store.create_topic("t", 1)
    append(store, *[b"x" * 500] * 30)
    store.flush()
    target = tmp_path / "copy"
    Backup(
        root,
        str(target),
        source=RealDisk(read_only=True),
        disk=RealDisk(),
        clock=ManualClock(),
        link=os.link,
    ).make()
    links = [path.stat().st_nlink for path in sorted((target / "commitlog").iterdir())]
    assert links == [2] * (len(links) - 1) + [1]
    store.close()
    copied = open_store(RealDisk(), root=str(target))
    assert len(bodies(copied)) == 30
    copied.close()
