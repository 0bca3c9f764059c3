"""The index: commit-log offsets by key, in RocketMQ's files, built off the hot path (D7).

Guarantees:

- Every record below `position` can be found by its unique key and by each word of its KEYS, but for the ranges that
  `missing` names. Building continues in bounded steps, in idle turns and when a query asks; nothing waits for it.
- The index is derived from the log. A file that is not what was last saved is made again from its part of the log, and
  nothing else is; that is counted and reported. What is in a file is a hint: readers compare the record.
- After a stop of any kind, files that were saved and are whole are kept. A save syncs the file first and then writes
  its sums to `pyddmq/index.json`; it comes with the checkpoint, when a file is full, and at close.
- A full disk lets the index lag behind, a failed write stops its building until the store is opened again; both are
  counted and neither touches anything else.
"""

from __future__ import annotations

from collections.abc import Callable, Generator

from broker.errors import NO_SPACE
from broker.index.file import IndexDamaged, IndexFile
from broker.index.keys import KeyHasher
from broker.index.parts import IndexGap, IndexParts
from broker.index.recent_records import IndexFeed
from broker.index.rows import RowMaker, Rows
from broker.index.state import IndexState, file_name
from broker.log.commit_log import CommitLog
from broker.log.walk import walk
from broker.options import StoreOptions
from broker.runtime.bundle import Runtime
from broker.runtime.file_writes import FileWrite, Steps, at_once, can_wait
from broker.runtime.steps import run_now
from broker.runtime.store_metrics import INDEX_ENTRIES, INDEX_FAILED, INDEX_FULL_DISK, INDEX_LAG

STEP_RECORDS = 256
"""Records of one step: about a millisecond."""
SAVE_SECONDS = 10.0
CLOSE_RECORDS_MAX = 50_000
"""Records that `close` still adds, so that RocketMQ, which never looks back, finds them too."""
_COMPARED_PIECES = 4
_RETRY_SECONDS = 1.0
_ALL_MS = 1 << 62


class _Repair:
    """The work on the first of the gaps: what is being written, and how far the walk came."""

    def __init__(self, gap: IndexGap, start: int) -> None:
        self.gap = gap
        self.position = start
        self.file: IndexFile | None = None


class Index:
    """The index of one store; see the module's docstring.

    Attributes:
        position: Commit-log offset up to which the log was read.
        saved_ms: Store time of the last entry that is durable, for RocketMQ's checkpoint.
        failed: Why nothing is built any more, or None.
        log: The commit log.
        hash: Of a topic's key, as entries carry it.
        feed: Takes what is appended, so that it is not read from the log again.
    """

    def __init__(
        self,
        root: str,
        *,
        log: CommitLog,
        options: StoreOptions,
        runtime: Runtime,
        finish_writes: Callable[[], None] = lambda: None,
        read_only: bool = False,
    ) -> None:
        """Set up; `open` does the work.

        Args:
            root: The store.
            log: Its commit log.
            options: Sizes of the files.
            runtime: Where; the clock names files and spaces saves.
            finish_writes: Ends a save that is under way; called before another one, and before files are removed.
            read_only: Nothing is built or changed; what is not believed counts as missing.
        """
        self._read_only = read_only
        self.position = 0
        self.saved_ms = 0
        self.failed: str | None = None
        self._folder = f"{root}/index"
        self.log = self._log = log
        disk, metrics = runtime.disk, runtime.metrics
        self._disk = disk
        self._clock = runtime.clock
        self._metrics = metrics
        self._limited_log = runtime.limited_log
        self._state = IndexState(root, disk=disk)
        self._finish_writes = finish_writes
        self.feed = IndexFeed()
        self.hash = KeyHasher().hash
        self._rows = RowMaker()
        self._parts = IndexParts(
            self._folder,
            log=log,
            options=options,
            runtime=runtime,
            read_only=read_only,
        )
        self._writer: IndexFile | None = None
        self._repair: _Repair | None = None
        self._compared: tuple[IndexFile, Generator[None, None, None]] | None = None
        self._known_to = -1  # records up to here may be in the files already
        self._retry_at = 0.0
        self._saved_at = runtime.clock.monotonic()
        self._entries = metrics.counter(INDEX_ENTRIES)

    # Opening

    def open(self, *, clean: bool, index_ms: int) -> None:
        """Take stock of the files; nothing is built yet. The log is recovered already.

        Args:
            clean: The store was closed properly.
            index_ms: The checkpoint's index time, for files that `pyddmq/index.json` does not know.
        """
        try:
            saved = self._state.load()
            whole = self._parts.take_stock(saved, clean=clean, index_ms=index_ms)
        except OSError as error:
            self._fail(error)
            return
        last = self._parts.last
        self.position = self._known_to = last.header.end if last is not None else self._log.min_offset
        if saved is not None and last is not None and whole and last.name == max(saved.files, default=""):
            self.position = max(saved.position, self.position)
        self.position = min(self.position, self._log.visible_end)
        self.saved_ms = last.header.end_ms if last is not None else 0

    # What is there

    @property
    def behind(self) -> bool:
        """Whether there is something to build."""
        return self.position < self._log.visible_end or bool(self._parts.gaps)

    @property
    def fresh(self) -> bool:
        """Whether all that is to be built was appended just now and is in the feed."""
        start = self.feed.start
        return start is not None and self.position >= start and not self._parts.gaps

    @property
    def files(self) -> list[IndexFile]:
        """The files that can be searched, oldest first."""
        return self._parts.files

    @property
    def missing(self) -> list[tuple[int, int]]:
        """Stretches [start, end) of the log that no file covers, newest first."""
        found = []
        if self.position < self._log.visible_end:
            found.append((max(self.position, self._log.min_offset), self._log.visible_end))
        for place, part in reversed(list(enumerate(self._parts.all))):
            if isinstance(part, IndexGap):
                found.append(self._parts.bounds(place))
        return found

    def holds(self, file: IndexFile) -> bool:
        """Whether a file is still one of the index's: retention may have deleted it."""
        return file in self._parts.all

    def distrust(self, file: IndexFile, why: str) -> None:
        """Have a file rebuilt from the log, because it was found to be damaged."""
        self._finish_writes()
        if file not in self._parts.all:
            return
        file.release()
        self._parts.all[self._parts.all.index(file)] = self._parts.gap(file.name, "damaged", why)
        if file is self._writer:
            self._writer = None
        try:
            if self._parts.drop_gaps_at_end():
                last = self._parts.last
                self.position = self._known_to = last.header.end if last is not None else self._log.min_offset
        except OSError as error:
            self._fail(error)

    # Building

    def step(self, records_max: int = STEP_RECORDS) -> bool:
        """Build a bounded piece; returns whether something is left that can be built now."""
        if self._read_only or self.failed is not None or self._clock.monotonic() < self._retry_at:
            return False
        try:
            if self._parts.gaps:
                self._step_repair(records_max)
            elif self.position < self._log.visible_end:
                self._step_tail(records_max)
        except IndexDamaged as error:
            # Its range comes back to be built, here or in the tail.
            self.distrust(error.file, str(error))
        except OSError as error:
            if error.errno in NO_SPACE:
                self._retry_at = self._clock.monotonic() + _RETRY_SECONDS
                self._metrics.counter(INDEX_FULL_DISK).add()
                self._limited_log.note("index_waits_for_disk_space", lag_bytes=self._log.visible_end - self.position)
            else:
                self._fail(error)
            return False
        return self.behind

    def _step_tail(self, records_max: int) -> None:
        last = self._parts.last if self._writer is None else None
        # A file without sums is RocketMQ's: to continue in it, all of it would have to be read.
        if last is not None and last.sums is not None and not last.full and not self._take_up(last):
            return
        rows, position = self._read(records_max)
        rows = _unknown(rows, self._known_to, self.files[-2:])
        at = 0 if self._writer is None else self._writer.put(rows)
        while at < rows.length:
            # Where this ends for want of space, the record may have some of its entries already.
            self._known_to = max(self._known_to, rows.physicals[at])
            self.position = rows.physicals[at]
            self._writer = self._next_writer()
            at = self._writer.put(rows, at)
        if self._writer is not None:
            self._writer.write()
        self._entries.value += rows.length
        self._parts.changed = True
        self.position = position

    def _read(self, records_max: int) -> tuple[Rows, int]:
        """Return entries of the log from `position` on, of what was fed if it is there, and where they end."""
        end = self._log.visible_end
        fed = self.feed.read(self.position, end, records_max)
        if fed is not None:
            records, position = fed
            return self._rows.of_fed(records), position
        if self.feed.start is not None and self.position < self.feed.start < end:
            end = self.feed.start
        walked, position = walk(self._log, self.position, end, records_max=records_max)
        return self._rows.of_records(walked), position

    def _take_up(self, last: IndexFile) -> bool:
        """Go on in the last file once its content is compared, some megabytes per call; returns whether it is."""
        if self._compared is None or self._compared[0] is not last:
            self._compared = (last, last.verify())
        for _ in range(_COMPARED_PIECES):
            if next(self._compared[1], last) is last:
                self._compared = None
                last.load()
                self._writer = last
                return True
        return False

    def _next_writer(self) -> IndexFile:
        """Seal the full file and make the next one."""
        if self._writer is not None:
            self._seal(self._writer)
        name = file_name(self._clock.wall_ms(), after=self._parts.all[-1].name if self._parts.all else "")
        file = self._parts.file(name)
        file.create()
        self._parts.names_changed = True
        self._parts.all.append(file)
        return file

    def _seal(self, file: IndexFile) -> None:
        self._finish_writes()
        at_once(self._disk, file.writing())
        file.release()
        # Also where a full disk does not take what follows: it is written no more.
        self._writer = None
        at_once(self._disk, self._writing_state())

    def _step_repair(self, records_max: int) -> None:
        """Go on with the first of the gaps; it becomes a file when its stretch of the log is read or the file full."""
        place = next(at for at, part in enumerate(self._parts.all) if isinstance(part, IndexGap))
        start, end = self._parts.bounds(place)
        gap, repair = self._parts.all[place], self._repair
        assert isinstance(gap, IndexGap)
        if repair is None or repair.gap is not gap:
            repair = self._repair = _Repair(gap, start)
        records, position = walk(self._log, max(repair.position, start), end, records_max=records_max)
        neighbours = [
            part for part in (*self._parts.all[:place][-1:], *self._parts.after(place)) if isinstance(part, IndexFile)
        ]
        rows = _unknown(self._rows.of_records(records), start, neighbours, end - 1)
        if rows.length and repair.file is None:
            repair.file = self._parts.file(repair.gap.name)
            repair.file.create()
        if repair.file is not None and (at := repair.file.put(rows)) < rows.length:
            # Several files in a row are to be made again: the next one continues with this record.
            self._entries.value += at
            self._close_gap(place, repair, follow=True)
            return
        self._entries.value += rows.length
        if repair.file is not None:
            repair.file.write()
        repair.position = position
        if position >= end:
            self._close_gap(place, repair)
            while place < len(self._parts.all) and isinstance(self._parts.all[place], IndexGap):
                # Nothing is left for the gaps that follow.
                self._parts.file(self._parts.all.pop(place).name).remove()

    def _close_gap(self, place: int, repair: _Repair, *, follow: bool = False) -> None:
        self._finish_writes()
        self._repair = None
        self._parts.names_changed = True
        if repair.file is None:
            self._parts.all.pop(place)
            self._parts.file(repair.gap.name).remove()
        else:
            at_once(self._disk, repair.file.writing())
            repair.file.release()
            self._parts.all[place] = repair.file
            if follow:
                self._parts.follow(place)
        at_once(self._disk, self._writing_state())

    # Writing

    def tick(self) -> None:
        """Do what is due about once a second: a small step, the lag's gauge. The log is synced before."""
        self.step()
        self._metrics.counter(INDEX_LAG).value = max(self._log.visible_end - self.position, 0)

    @property
    def is_save_due(self) -> bool:
        """Whether something was built, and the last save is ten seconds ago."""
        return self._parts.changed and self.failed is None and self._clock.monotonic() - self._saved_at >= SAVE_SECONDS

    def writing(self, *, now: bool = False) -> FileWrite:
        """Make what was built durable when that is due, or `now`, in steps; before the checkpoint is written."""
        if not (self.is_save_due or (now and self._parts.changed and self.failed is None)):
            return
        self._saved_at = self._clock.monotonic()
        try:
            yield from self._writing_state(self._writer)
        except OSError as error:
            if not can_wait(error):
                self._fail(error)

    def _writing_state(self, writer: IndexFile | None = None) -> FileWrite:
        """Make `writer` and the names of the files durable, then the state as it is now."""
        position, names_changed = self.position, self._parts.names_changed
        files = {file.name: file.sums for file in self.files if file is not self._writer or file.sums is not None}
        last = self.files[-1].header if self.files else None
        missing = [gap.name for gap in self._parts.gaps]
        self._parts.changed = self._parts.names_changed = False
        try:
            if writer is not None:
                files[writer.name] = yield from writer.writing()
            if names_changed:
                yield self._folder
            yield from self._state.writing(position, files, missing)
        except BaseException:
            self._parts.changed = True
            self._parts.names_changed |= names_changed
            raise
        self.saved_ms = last.end_ms if last is not None else 0

    def dropping_before(self, physical: int) -> Steps[int]:
        """Delete files whose last entry is before a commit-log offset; the last file stays. Returns their number."""
        dropped = 0
        try:
            while len(self._parts.all) > 1 and self._parts.first_ends_before(physical):
                part = self._parts.all.pop(0)
                self._repair = None
                (part if isinstance(part, IndexFile) else self._parts.file(part.name)).remove()
                dropped += 1
            if dropped:
                self._parts.names_changed = True
                yield from self._writing_state()
        except OSError as error:
            if not can_wait(error):
                self._fail(error)
        return dropped

    def close(self) -> None:
        """Add what is left, within bounds, and save."""
        for _ in range(CLOSE_RECORDS_MAX // STEP_RECORDS):
            if not self.step():
                break
        self._finish_writes()
        at_once(self._disk, self.writing(now=True))
        if self.behind:
            self._limited_log.note("index_closed_behind", lag_bytes=self._log.visible_end - self.position)
        self.release()

    def stop(self) -> None:
        """Write nothing any more: the store has failed. What is there can be searched."""
        if self.failed is None:
            self.failed = "the store has failed"
            self.feed.close()

    def release(self) -> None:
        """Let go of the files without writing anything."""
        for file in self.files:
            file.release()
        if self._repair is not None and self._repair.file is not None:
            self._repair.file.release()
        self._writer = None

    def _fail(self, error: OSError) -> None:
        self.failed = f"{error.filename or self._folder}: {error.strerror or error}"
        self.feed.close()
        self._metrics.counter(INDEX_FAILED).value = 1
        self._limited_log.note("index_failed", folder=self._folder, error=str(error))


def _unknown(rows: Rows, known_to: int, files: list[IndexFile], known_from: int = _ALL_MS) -> Rows:
    """Leave out entries up to one commit-log offset and from another on that the files have already."""
    hashes, physicals, _ = rows
    if not physicals or (physicals[0] > known_to and physicals[-1] < known_from):
        return rows
    kept = [
        place
        for place, (key_hash, physical) in enumerate(zip(hashes, physicals, strict=True))
        if known_to < physical < known_from or not _has(files, key_hash, physical)
    ]
    return Rows(*([column[place] for place in kept] for column in rows))


def _has(files: list[IndexFile], key_hash: int, physical: int) -> bool:
    for file in files:
        run_now(file.verify())
        if physical in file.find(key_hash, 0, _ALL_MS):
            return True
    return False
