"""Space for the commit log: the next file ahead of its need, and one file set aside for the broker's own records (D5).

A publish is refused when no further file can be claimed. Dead letters must still be written then, or the keys that they
free would wait: they may use `pyddmq/segment.spare`, a whole log file claimed at start while there was room. While that
file is in use and no other can be set aside, publishes are refused although it has space left.

| disk | publishes | the broker's own records |
| --- | --- | --- |
| has room | taken | taken |
| full | refused behind the present file | taken: the spare file becomes the log's next |
| full, the spare used up | refused | refused; what needs a dead letter waits |
| full, the spare given back for a checkpoint | refused behind the present file | taken, from what it gave back |
| has room again | taken, once another spare file is set aside | taken |
"""

from __future__ import annotations

from collections.abc import Callable, Sequence, Set
from contextlib import closing

from broker.errors import NO_SPACE, DiskFull, StoreFailed
from broker.format.record import BLANK_BYTES
from broker.log.commit_log import CommitLog
from broker.log.put import Put
from broker.runtime.bundle import Runtime
from broker.runtime.file_writes import FileWrite, FileWrites, StateWriter
from broker.runtime.store_metrics import REFUSED, RESERVE, RESERVE_USED

FREE_SEGMENTS_MIN = 2
"""Log files that the free space must hold before the first spare is claimed: itself, and one to publish into."""


class SegmentSpace:
    """Decides what may be appended where, and claims files.

    Attributes:
        lent: Number of the segment that was the spare file, or may use its space, while no other is set aside.
        is_given_back: The spare file was emptied so that a checkpoint has room, and is not to be claimed yet.
    """

    def __init__(
        self,
        root: str,
        *,
        log: CommitLog,
        runtime: Runtime,
        fail: Callable[[str, OSError], StoreFailed],
        file_writes: FileWrites,
        published: Set[str],
    ) -> None:
        """Set up; no file is touched.

        Args:
            root: The store.
            log: Its log.
            runtime: Its disk has the files; counts and says what is refused.
            fail: Stops the store's write side for good.
            file_writes: Claims files beside the loop.
            published: System topics that hold what clients publish (`OpenedFeatures.published`).
        """
        self.lent: int | None = None
        self.is_given_back = False
        self._published = published
        self._root = root
        self._path = f"{root}/pyddmq/segment.spare"
        self._log = log
        self._disk = runtime.disk
        self._metrics = runtime.metrics
        self._limited_log = runtime.limited_log
        self._fail = fail
        self._claims = StateWriter(runtime.disk, file_writes, self._claiming)
        self._reserve = runtime.metrics.counter(RESERVE)
        self._refused = False

    def reserve(self, puts: Sequence[Put], sizes: list[int], *, atomic: bool, is_tentative: bool = False) -> list[int]:
        """Decide where records go and claim the files they need; see `CommitLog.reserve`, and `Store.append`.

        Raises:
            DiskFull: There is no space for them; counted.
            StoreFailed: A file could not be claimed for another reason; the store has failed.
        """
        try:
            if self.lent is not None and not self._may_append(puts, sizes, self.lent):
                raise self._refusal(0 if is_tentative else len(puts))
            return self._log.reserve(sizes, contiguous=atomic)
        except OSError as error:
            if error.errno not in NO_SPACE:
                raise self._fail("reserving a commit-log file", error) from error
            full = error
        try:
            if self._is_own(puts) and self._lend():
                return self._log.reserve(sizes, contiguous=atomic)
        except OSError as error:
            if error.errno not in NO_SPACE:
                raise self._fail("using the spare commit-log file", error) from error
        raise self._refusal(0 if is_tentative else len(puts)) from full

    @property
    def refuses(self) -> bool:
        """Whether an append was refused for want of space, and there is none yet."""
        if self._refused and self.lent is None and self._free() >= self._log.segment_bytes:
            self._refused = False
        return self._refused

    @property
    def reserve_bytes(self) -> int:
        """Bytes that are set aside for the broker's own records."""
        return self._reserve.value

    def _refusal(self, count: int) -> DiskFull:
        self._refused = True
        if count:
            self._metrics.counter(REFUSED, "disk_full").add(count)
            self._limited_log.note("append_refused_disk_full", root=self._root)
        return DiskFull(self._root, self._log.segment_bytes)

    def _may_append(self, puts: Sequence[Put], sizes: list[int], lent: int) -> bool:
        """Whether an append leaves the lent file alone, or is one that it is for; else another is set aside first."""
        end, segment_bytes = self._log.end, self._log.segment_bytes
        fits = end // segment_bytes < lent and sum(sizes) + BLANK_BYTES <= -end % segment_bytes
        return fits or self._is_own(puts) or (not self.is_given_back and self._make_spare())

    def _is_own(self, puts: Sequence[Put]) -> bool:
        """Whether all messages are the broker's own: clients publish to no system topic, but for what is to wait."""
        return all(put.topic.system and put.topic.name not in self._published for put in puts)

    def _lend(self) -> bool:
        """Make the spare file the log's next segment; False when there is none."""
        if not self._reserve.value:
            return False
        number = self._log.capacity_end // self._log.segment_bytes
        self._reserve.value = 0
        self._log.adopt(self._path, number)
        self.lent = number
        self._metrics.counter(RESERVE_USED).add()
        self._limited_log.note("reserve_in_use", root=self._root, segment=number * self._log.segment_bytes)
        return True

    def tend(self) -> None:
        """Do what is due in the background: set the spare file aside, claim the first segment, and others at half.

        Raises:
            OSError: Another failure than a full disk.
        """
        if self.is_given_back:
            # Nothing is claimed of that room: it is for the checkpoint.
            return
        self.set_aside()
        if self._next_unclaimed() is not None:
            self._claims.begin()

    def _next_unclaimed(self) -> int | None:
        """Return the segment to claim early: the first of an empty log, or the next when half of one is used."""
        log = self._log
        number, used = divmod(log.end, log.segment_bytes)
        if not log.segments:
            return number
        if number in log.segments and used * 2 >= log.segment_bytes and number + 1 not in log.segments:
            return number + 1
        return None

    def _claiming(self) -> FileWrite:
        number = self._next_unclaimed()
        if number is None:
            return
        try:
            yield from self._log.claiming(number)
        except OSError as error:
            if error.errno not in NO_SPACE:
                self._fail("reserving a commit-log file", error)

    def give_back(self) -> None:
        """Empty the spare file, where there is one: a checkpoint has no room, and with it a log file could go.

        Publishes get none of that room; the broker's own records may. The empty file shows a restart that one is due.
        Raises OSError.
        """
        if self._reserve.value:
            with closing(self._disk.open(self._path)) as file:
                file.truncate(0)
            self._reserve.value = 0
            self.lent = self._log.capacity_end // self._log.segment_bytes
            self.is_given_back = True
            self._limited_log.note("reserve_given_back", root=self._root, bytes=self._log.segment_bytes)

    def take_back(self) -> None:
        """Have the spare file be set aside again, as soon as there is room for it: the checkpoint is written."""
        self.is_given_back = False

    def set_aside(self) -> None:
        """Claim the spare file where it is missing and there is room for it; quiet when there is none.

        Raises:
            OSError: Another failure than a full disk.
        """
        if self._reserve.value:
            return
        if self.lent is not None or self._free() >= FREE_SEGMENTS_MIN * self._log.segment_bytes or self._is_there():
            self._make_spare()
        if not self._reserve.value:
            text = "the disk is too full to reserve space for dead letters; free some space"
            self._limited_log.note("reserve_missing", root=self._root, needed_bytes=self._log.segment_bytes, text=text)

    def _free(self) -> int:
        return self._disk.free_bytes(self._root)

    def _is_there(self) -> bool:
        return self._disk.exists(self._path)

    def _make_spare(self) -> bool:
        """Claim the spare file, or take the one that an earlier process left; False when the disk is full."""
        size, was_there = self._log.segment_bytes, self._is_there()
        file = self._disk.open(self._path, create=True)
        try:
            if file.size() != size:
                file.truncate(0)
                file.allocate(size)
            file.sync()
            self._disk.sync_folder(f"{self._root}/pyddmq")
        except OSError as error:
            if error.errno not in NO_SPACE:
                raise
            if was_there:
                file.truncate(0)
            else:
                self._disk.remove(self._path)
            return False
        finally:
            file.close()
        self._reserve.value = size
        self.lent = None
        return True
