"""The files of an index in the order of the log, and the gaps that are to be made again."""

from __future__ import annotations

from broker.index.file import IndexDamaged, IndexFile
from broker.index.state import SavedIndex, is_file_name
from broker.log.commit_log import CommitLog
from broker.options import StoreOptions
from broker.runtime.bundle import Runtime
from broker.runtime.store_metrics import INDEX_REBUILT

_GAP_FILES_MAX = 1_000_000
"""Numbers of names that are kept for the files of a gap before the first file."""


class IndexGap:
    """A file that is to be rebuilt from the log."""

    def __init__(self, name: str) -> None:
        self.name = name


class IndexParts:
    """Files and gaps of one index.

    Attributes:
        all: Oldest first.
        changed: Something is to be saved.
        names_changed: The folder is to be synced with it.
    """

    def __init__(
        self,
        folder: str,
        *,
        log: CommitLog,
        options: StoreOptions,
        runtime: Runtime,
        read_only: bool,
    ) -> None:
        """Set up; `take_stock` reads.

        Args:
            folder: Where the files are.
            log: The store's commit log.
            options: Sizes of the files.
            runtime: Its disk has the files; counts gaps, and reports them.
            read_only: Nothing is deleted, counted or reported.
        """
        self.all: list[IndexFile | IndexGap] = []
        self.changed = False
        self.names_changed = False
        self._folder = folder
        self._log = log
        self._disk = runtime.disk
        self._options = options
        self._metrics = runtime.metrics
        self._limited_log = runtime.limited_log
        self._read_only = read_only

    def take_stock(self, saved: SavedIndex | None, *, clean: bool, index_ms: int) -> bool:
        """Find out which files are what was last saved; the others become gaps.

        Args:
            saved: What `pyddmq/index.json` says, None when it says nothing.
            clean: The store was closed properly.
            index_ms: The checkpoint's index time, for files that `saved` does not know.

        Returns:
            Whether the last file is whole.

        Raises:
            OSError: The folder or a file cannot be read.
        """
        names = self._disk.list(self._folder)
        for name in names:
            try:
                known = is_file_name(name)
                if known:
                    self.all.append(self._taken(name, saved, clean=clean, index_ms=index_ms))
            except IsADirectoryError:
                known = False
            if not known:
                self._limited_log.note("index_foreign_file_left_alone", file=f"{self._folder}/{name}")
        for name in saved.files.keys() - set(names) if saved is not None else ():
            self.all.append(self.gap(name, "missing", "it is missing"))
        self.all += [
            IndexGap(name) for name in (saved.missing - saved.files.keys() - set(names) if saved is not None else ())
        ]
        self.all.sort(key=lambda part: part.name)
        first = next(iter(self.files), None)
        if saved is None and first is not None and first is self.all[0] and first.header.begin > self._log.min_offset:
            # RocketMQ indexes nothing while messageIndexEnable is false: what is before its first file is not known.
            self.all.insert(0, IndexGap(f"{max(int(first.name) - _GAP_FILES_MAX, 0):0{len(first.name)}d}"))
            self.changed = self.names_changed = True
        return not self.drop_gaps_at_end()

    def _taken(self, name: str, saved: SavedIndex | None, *, clean: bool, index_ms: int) -> IndexFile | IndexGap:
        file = self.file(name)
        try:
            file.read_header()
        except IndexDamaged as error:
            return self.gap(name, "damaged", str(error))
        header = file.header
        if saved is not None and name in saved.missing:
            return IndexGap(name)
        if saved is not None and name in saved.files:
            file.sums = saved.files[name]
            if file.sums is not None and file.resized:
                return self.gap(name, "damaged", "its size differs from the saved one")
            if file.sums is not None and file.sums.header != header:
                return self.gap(name, "damaged", "its header differs from the saved one")
            if header.end >= self._log.visible_end:
                return self.gap(name, "cut", "the log ends before its last entry")
        elif (
            header.next_entry <= 1
            or header.end >= self._log.visible_end
            or not (clean or (saved is None and header.end_ms <= index_ms))
        ):
            return self.gap(name, "unfinished", "it is newer than the last saved one")
        return file

    def gap(self, name: str, reason: str, why: str) -> IndexGap:
        """Make a gap of a file that is not believed; counted by `reason` and reported."""
        if self._read_only:
            return IndexGap(name)
        self._metrics.counter(INDEX_REBUILT, reason).add()
        self._limited_log.note("index_file_rebuilt", file=f"{self._folder}/{name}", why=why)
        self.changed = self.names_changed = True
        return IndexGap(name)

    def follow(self, place: int) -> None:
        """Put a gap behind a file that is full before the next one begins, if none is there."""
        name = self.all[place].name
        after = self.all[place + 1 :][:1]
        following = f"{int(name) + 1:0{len(name)}d}"
        if after and isinstance(after[0], IndexFile) and following < after[0].name:
            self.all.insert(place + 1, IndexGap(following))

    def drop_gaps_at_end(self) -> bool:
        """Delete files at the end that are made again anyway: the walk of the log's tail does it. Raises OSError."""
        dropped = False
        while self.all and isinstance(self.all[-1], IndexGap):
            gap = self.all.pop()
            dropped = self.names_changed = True
            if not self._read_only:
                self.file(gap.name).remove()
        return dropped

    @property
    def files(self) -> list[IndexFile]:
        """The files that can be searched, oldest first."""
        return [part for part in self.all if isinstance(part, IndexFile)]

    @property
    def gaps(self) -> list[IndexGap]:
        """What is to be made again, oldest first."""
        return [part for part in self.all if isinstance(part, IndexGap)]

    @property
    def last(self) -> IndexFile | None:
        """The newest file that can be searched."""
        files = self.files
        return files[-1] if files else None

    def bounds(self, place: int) -> tuple[int, int]:
        """Stretch [start, end) of the log that a gap's file covered, with its neighbours' records at both ends."""
        before = [part.header.end for part in self.all[:place] if isinstance(part, IndexFile)]
        after = self.after(place)
        start = max(before[-1] if before else 0, self._log.min_offset)
        return start, after[0].header.begin + 1 if after else self._log.visible_end

    def after(self, place: int) -> list[IndexFile]:
        """The first file from a place on, if there is one."""
        return [part for part in self.all[place:] if isinstance(part, IndexFile)][:1]

    def first_ends_before(self, physical: int) -> bool:
        """Whether the oldest part says nothing of the log from a commit-log offset on."""
        first = self.all[0]
        return (first.header.end if isinstance(first, IndexFile) else self.bounds(0)[1] - 1) < physical

    def file(self, name: str) -> IndexFile:
        """A file of this index, there or not."""
        return IndexFile(
            self._disk,
            f"{self._folder}/{name}",
            slots=self._options.index_slots,
            entries=self._options.index_entries,
        )
