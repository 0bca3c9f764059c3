"""A checkpoint whose syncs go on beside the loop: it is of the moment at which it began, whatever happens meanwhile."""

from __future__ import annotations

import errno
from random import Random

import pytest

from broker.errors import DiskFull
from broker.runtime.seams import DiskFile, Reported, Syncing, Syncs
from broker.store import Store
from pyddmq.testing import ManualClock, ManualScheduler, PowerCut, SimDisk, SimSyncs
from tests.integration.store_tools import ROOT, append, bodies, open_store
from tests.stopping import end_run


class Beside:
    """A store whose state files are saved beside a manual loop."""

    def __init__(self, seed: int, disk: SimDisk | None = None) -> None:
        self.disk = disk or SimDisk()
        self.clock = ManualClock()
        self.scheduler = ManualScheduler(self.clock)
        self.store: Store = open_store(self.disk, clock=self.clock)
        self.store.create_topic("t", 2)
        self.store.file_writes.syncs = SimSyncs(self.disk, self.scheduler, Random(seed))
        self.sent: list[list[bytes]] = [[], []]

    def send(self, count: int = 5) -> None:
        """Store messages in both queues."""
        for number in range(count):
            queue_id = number % 2
            body = b"%d" % len(self.sent[queue_id]) * 40
            append(self.store, body, queue_id=queue_id)
            self.store.flush()
            self.sent[queue_id].append(body)

    def again(self) -> Store:
        """Open what is there."""
        store = open_store(self.disk, seed=2)
        for queue_id in range(2):
            found = list(bodies(store, queue_id=queue_id).values())
            # The last one may be there though nobody was answered.
            assert found[: len(self.sent[queue_id])] == self.sent[queue_id]
            assert len(found) <= len(self.sent[queue_id]) + 1
        return store


class CountedSyncs:
    """Notes how many syncs were begun before the first of them was waited for.

    Attributes:
        groups: That number, for each time.
    """

    def __init__(self, syncs: Syncs | None) -> None:
        assert syncs is not None
        self.groups: list[int] = []
        self._syncs = syncs
        self._begun = 0

    def begin(self, file: DiskFile, done: Reported) -> Syncing:
        """Begin to sync a file."""
        self._begun += 1
        return _Counted(self, self._syncs.begin(file, done))

    def begin_folder(self, path: str, done: Reported) -> Syncing:
        """Begin to sync a folder."""
        self._begun += 1
        return _Counted(self, self._syncs.begin_folder(path, done))

    def waited(self) -> None:
        """Note a group, unless the one that was waited for belongs to the last one."""
        if self._begun:
            self.groups.append(self._begun)
            self._begun = 0


class _Counted:
    """A sync of `CountedSyncs`."""

    def __init__(self, counted: CountedSyncs, syncing: Syncing) -> None:
        self._counted = counted
        self._syncing = syncing

    def wait(self) -> None:
        """Wait for it."""
        self._counted.waited()
        self._syncing.wait()


@pytest.mark.parametrize("power", [False, True])
def test_stop_at_every_change_loses_and_moves_nothing(power: bool) -> None:
    """Messages are stored between its steps, another one is begun, and the store is closed amid one."""
    stopped = 0
    for changes in range(150):
        made = Beside(changes)
        made.send()
        made.clock.advance(20)
        made.disk.stop_after(changes)
        try:
            for _ in range(3):
                made.store.checkpoint()
                for _ in range(6):
                    made.scheduler.advance(0.0005)
                    made.send(2)
                made.clock.advance(20)
            made.store.checkpoint()
            made.store.close()
        except PowerCut:
            stopped += 1
        end_run(made.disk, changes, power=power)
        made.again().close()
    assert stopped > 100


def test_checkpoint_is_of_the_moment_at_which_it_began() -> None:
    """What was stored meanwhile is found by the scan behind it, and is there."""
    made = Beside(1)
    made.send(10)
    end = made.store.end
    made.clock.advance(20)
    made.store.checkpoint()
    made.send(10)
    made.scheduler.advance(1)
    assert made.store.checkpointer.end == end
    made.disk.crash(Random(1))
    store = made.again()
    assert store.recovery.scanned_from == end


class _NoSyncHere(SimDisk):
    """Notes each sync that its caller waits for."""

    def __init__(self) -> None:
        super().__init__()
        self.waited: list[str] = []

    def sync_folder(self, path: str) -> None:
        """Note it."""
        self.waited.append(path)
        super().sync_folder(path)

    def make_folder(self, path: str, *, durable: bool = True) -> None:
        """Note that the real disk syncs its parent."""
        if durable and not self.exists(path):
            self.waited.append(path)
        super().make_folder(path)


def test_first_files_of_queues_are_synced_beside_the_loop() -> None:
    """Their folders, too: the loop waits for none of these syncs, and all names are durable in the end."""
    disk = _NoSyncHere()
    made = Beside(1, disk)
    made.send()
    made.clock.advance(20)
    disk.waited.clear()
    made.store.checkpoint()
    made.scheduler.advance(1)
    assert made.store.checkpointer.end == made.store.end
    assert disk.waited == []
    disk.crash(Random(1))
    names = [name for queue_id in range(2) for name in disk.list(f"{ROOT}/consumequeue/t/{queue_id}")]
    assert names == ["0" * 20] * 2


def test_a_stop_syncs_the_files_of_queues_side_by_side() -> None:
    """So that it waits for a few syncs, and not for one sync of each file: 12 queues have 26 files and folders."""
    made = Beside(1)
    made.store.create_topic("many", 12)
    for queue_id in range(12):
        append(made.store, b"x", topic="many", queue_id=queue_id)
    made.store.flush()
    syncs = CountedSyncs(made.store.file_writes.syncs)
    made.store.file_writes.syncs = syncs
    made.store.close()
    assert max(syncs.groups) == 12 + 12 + 2
    assert len(syncs.groups) == 1


def test_no_second_checkpoint_begins_before_the_first_has_ended() -> None:
    """However long its syncs take."""
    made = Beside(1)
    made.send()
    made.clock.advance(20)
    made.store.checkpoint()
    before = made.disk.operations
    made.clock.advance(20)
    made.store.checkpoint()
    assert made.disk.operations == before
    made.scheduler.advance(1)
    assert made.store.checkpointer.end == made.store.end


def test_topic_deleted_meanwhile_stays_deleted() -> None:
    """Nothing of its queues is written again; a new topic of that name begins behind it, with the next file (D11)."""
    for steps in range(12):
        made = Beside(steps)
        made.store.create_topic("gone", 1)
        append(made.store, b"x", topic="gone")
        made.send()
        made.clock.advance(20)
        made.store.checkpoint()
        made.scheduler.advance(steps * 0.0003)
        made.store.topic_changes.delete("gone")
        made.store.create_topic("gone", 1)
        assert made.store.topics["gone"].queues[0].max_offset == made.store.options.queue_file_units
        made.scheduler.advance(1)
        made.disk.crash(Random(steps))
        assert "gone" in made.again().topics


@pytest.mark.parametrize(
    ("operation", "error", "fails"),
    [
        ("sync", errno.EIO, True),
        ("sync", errno.ENOSPC, True),
        ("sync_folder", errno.EIO, True),
        ("write", errno.EROFS, True),
        ("write", errno.ENOSPC, False),
    ],
)
def test_failure_stops_the_write_side_and_a_full_disk_waits(operation: str, error: int, fails: bool) -> None:
    """A full disk at a write is waited out; a queue file that could not be synced may have lost what it had."""
    made = Beside(3)
    made.send()
    made.clock.advance(20)
    made.disk.fail(operation, error=error, path_part="/consumequeue/" if operation != "sync_folder" else "")
    made.store.checkpoint()
    made.scheduler.advance(1)
    assert (made.store.failed is not None) is fails
    if not fails:
        made.disk.heal()
        made.store.checkpoint()
        made.scheduler.advance(1)
        assert made.store.checkpointer.end == made.store.end


@pytest.mark.parametrize("power", [False, True])
def test_stop_at_every_change_while_the_next_file_of_the_log_is_claimed(power: bool) -> None:
    """Messages fill the present file meanwhile, at some stops before the next one is there."""
    for changes in range(60):
        made = Beside(changes)
        made.send(14)
        made.disk.stop_after(changes)
        try:
            for _ in range(4):
                made.store.checkpoint()
                for _ in range(4):
                    made.scheduler.advance(0.0003)
                    made.send(1 + changes % 5)
            made.store.close()
        except PowerCut:
            pass
        end_run(made.disk, changes, power=power)
        made.again().close()


def test_file_that_is_needed_before_its_claim_has_ended_is_claimed_once() -> None:
    """The append ends the claim; where that finds no space, it is refused as ever."""
    for full in (False, True):
        made = Beside(1)
        while made.store.end * 2 < 4096:
            made.send(1)
        made.store.checkpoint()
        if full:
            made.disk.fail("sync", error=errno.ENOSPC, path_part="segment.new")
            made.disk.fail("allocate", error=errno.ENOSPC)
            with pytest.raises(DiskFull):
                made.send(50)
            made.disk.heal()
        made.send(50)
        assert made.store.end > 4096
        made.scheduler.advance(1)
        assert made.store.failed is None
        made.disk.kill()
        made.again().close()
