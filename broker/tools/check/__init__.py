"""Looks at every byte of a store without changing one: what `pyddmq store check` finds of the broker's files.

`StoreCheck` is the whole; the modules hold what is found (`findings`), the small files (`small_files`), the log
(`records`), its queues (`queues`) and the index (`index`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from broker.opening.recovery import ProgressCallback
from broker.opening.store_json import CheckpointFile
from broker.runtime.disks.read_only_disk import ReadingDisk
from broker.runtime.seams import Clock, Disk
from broker.tools.check.findings import Severity, StoreFinding
from broker.tools.check.index import check_index
from broker.tools.check.records import RecordCheck, Tally
from broker.tools.check.small_files import (
    check_foreign,
    check_geometry,
    check_names,
    check_own_folder,
    check_state_files,
    load_topics,
)

__all__ = ["Severity", "StoreCheck", "StoreFinding", "Tally"]


@dataclass(slots=True)
class StoreCheck:
    """One look at a store.

    Attributes:
        root: Its folder.
        disk: Where; nothing is changed on it.
        clock: For the topics' file.
        ours: The lock is held by who asks.
        live: Somebody has the store open: its tail moves.
        tally: What was read, filled by `run`.
        records: The look at log and queues, with what a repair needs; None before `run` came there.
    """

    root: str
    disk: Disk
    clock: Clock
    ours: bool = False
    live: bool = False
    tally: Tally = field(default_factory=Tally)
    records: RecordCheck | None = None

    def run(self, progress: ProgressCallback | None = None) -> Iterator[StoreFinding]:
        """Yield what is wrong or worth knowing, in the order in which it is met.

        Args:
            progress: Called now and then with (bytes of the log looked at, bytes of the log).

        Raises:
            StoreUnreadable: There is no store.
            StoreFormatNewer: A newer version wrote it.
            OSError: A folder cannot be read.
        """
        root = self.root
        disk = ReadingDisk(self.disk)
        self.live = not self.ours and disk.locked(f"{root}/lock")
        if self.live:
            yield StoreFinding(
                kind="live",
                severity=Severity.NOTE,
                file="lock",
                text="another process has the store open; its tail moves during the check",
                costs="nothing",
            )
        # Read before the log's files are listed: what it says is then in them for certain.
        checkpoint = CheckpointFile(root, disk=disk).load()
        geometry = yield from check_geometry(root, disk=disk)
        yield from check_names(root, disk=disk, live=self.live)
        yield from check_state_files(root, disk=disk)
        yield from check_own_folder(root, disk=disk)
        yield from check_foreign(root, disk=disk)
        topics = yield from load_topics(root, geometry, disk=disk, clock=self.clock)
        self.records = RecordCheck(root, geometry, topics, checkpoint, disk=disk, live=self.live)
        yield from self.records.run(progress)
        self.tally = self.records.tally
        yield from check_index(root, geometry, self.tally.end, disk=disk, live=self.live)
