"""One audit trail: a file of JSON lines that only grows, and is put aside when it is large.

`changes.jsonl` is the present file, `changes.1.jsonl` the one before, and so on; beyond as many as are kept the oldest
goes. A line is written whole before the change begins, and what must hold is synced before it counts. A line that a
kill or a full disk tore is ended at the next start, and is not an entry; nor is any other text. After a
sync that failed nothing of the file is believed to be on the disk, and a new one is begun.

Only who has the lock of the store writes here. Files are their owner's alone, as all of the store's are.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable

import msgspec

from broker.format.numbers import whole_number
from broker.runtime.metrics import declare
from broker.runtime.seams import Disk, DiskFile, Syncs
from conf.sections.admin import AdminConfig
from proxy.access.views import AuditEntry

LINES = declare("pyddmq_audit_lines_total", "Lines of the audit trail; trail: changes, denials", ("trail",))
LOST = declare(
    "pyddmq_audit_lost_total",
    "Lines of the audit trail that could not be written: outcomes of changes, and denials; the log contains them",
    ("trail",),
)

FOLDER = "pyddmq/audit"
RECENT_MAX = 1_000
"""Entries that are kept in memory to be shown."""
_TAIL_BYTES = 512 * 1024
_LINE_BYTES_MAX = 32 * 1024
"""Longer than any that is written: a body is cut by its characters, of up to four bytes each."""
_NUMBER_DIGITS = 4


class Trail:
    """One trail of a store.

    Args:
        disk: Where.
        folder: Where its files stand.
        name: What they are called.
        syncs: Make syncs beside the loop; None: they are made at once.
        settings: When a file is put aside, and how many are kept.

    Attributes:
        recent: The last entries, the newest last.
    """

    def __init__(
        self, disk: Disk, folder: str, name: str, *, syncs: Syncs | None, settings: Callable[[], AdminConfig]
    ) -> None:
        self._disk = disk
        self._folder = folder
        self._name = name
        self._syncs = syncs
        self._settings = settings
        self._file: DiskFile | None = None
        self._end = 0
        self._unsynced = False
        self._is_suspect = False
        """A sync has failed."""
        self.recent: deque[AuditEntry] = deque(maxlen=RECENT_MAX)
        self.number = 0

    def load(self) -> None:
        """Read what was written last. Raises OSError."""
        for at in (1, 0):
            path = self._path(at)
            if not self._disk.exists(path):
                continue
            file = self._disk.open(path)
            try:
                size = file.size()
                begin = max(0, size - _TAIL_BYTES)
                lines = file.read(begin, size - begin).split(b"\n")
            finally:
                file.close()
            # The text before the first end of a line may be the end of a longer one.
            self.recent += [each for each in map(_entry, lines[1 if begin else 0 :]) if each is not None]
        self.number = max([each.number for each in self.recent], default=0)

    def add(self, entry: AuditEntry) -> DiskFile:
        """Write an entry; returns the file that has it. Raises OSError: it is not there."""
        line = msgspec.json.encode(entry) + b"\n"
        file = self._opened(len(line))
        try:
            file.write(self._end, [line])
        except OSError:
            with contextlib.suppress(OSError):
                file.truncate(self._end)
            raise
        self._end += len(line)
        self._unsynced = True
        self.number = entry.number
        self.recent.append(entry)
        return file

    async def keep(self, entry: AuditEntry) -> None:
        """Write an entry and wait until it is durable. Raises OSError: it may not be."""
        file = self.add(entry)
        # Before anything else is done: its sync is its own, and not one that was begun before it.
        self._unsynced = False
        if self._syncs is None:
            self._synced_at_once(file)
            return
        loop = asyncio.get_running_loop()
        ended: asyncio.Future[OSError | None] = loop.create_future()

        def end(error: OSError | None) -> None:
            # Whoever asked may have gone away.
            if not ended.done():
                ended.set_result(error)

        self._syncs.begin(file, end)
        error = await ended
        if error is not None:
            self._is_suspect = True
            raise error

    def begin_sync(self) -> None:
        """Make what was added durable, beside the loop."""
        if not self._unsynced or self._file is None:
            return
        self._unsynced = False
        if self._syncs is not None:
            self._syncs.begin(self._file, self._suspect)
            return
        with contextlib.suppress(OSError):
            self._synced_at_once(self._file)

    def close(self) -> None:
        """Let go of the file; what was added is durable then. Raises OSError."""
        file, self._file = self._file, None
        if file is not None:
            try:
                if self._unsynced:
                    file.sync()
            finally:
                self._unsynced = False
                file.close()

    def _synced_at_once(self, file: DiskFile) -> None:
        try:
            file.sync()
        except OSError as error:
            self._suspect(error)
            raise

    def _suspect(self, error: OSError | None) -> None:
        if error is not None:
            self._is_suspect = True

    def _opened(self, size: int) -> DiskFile:
        """Return the file that a line of this size goes into."""
        file = self._file or self._open()
        if self._is_suspect or (self._end and self._end + size > self._settings().audit_file_bytes):
            return self._put_aside(file)
        return file

    def _open(self) -> DiskFile:
        self._disk.make_folder(self._folder)
        path = self._path(0)
        is_new = not self._disk.exists(path)
        file = self._disk.open(path, create=True)
        try:
            end = file.size()
            if end and file.read(end - 1, 1) != b"\n":
                # A line that was torn; no change began by it.
                file.write(end, [b"\n"])
                end += 1
            if is_new:
                self._disk.sync_folder(self._folder)
        except OSError:
            file.close()
            raise
        self._file, self._end = file, end
        return file

    def _put_aside(self, file: DiskFile) -> DiskFile:
        kept = self._settings().audit_files
        numbers = sorted(filter(None, map(self._number_of, self._disk.list(self._folder))), reverse=True)
        for number in numbers:
            if number >= kept - 1:
                self._disk.remove(self._path(number))
            else:
                self._disk.replace(self._path(number), self._path(number + 1))
        if self._unsynced and not self._is_suspect:
            file.sync()
        self._disk.replace(self._path(0), self._path(1))
        file.close()
        self._file, self._is_suspect = None, False
        return self._open()

    def _path(self, number: int) -> str:
        part = f".{number}" if number else ""
        return f"{self._folder}/{self._name}{part}.jsonl"

    def _number_of(self, file: str) -> int:
        """Return the number of a file that was put aside; 0 of any other."""
        text = file.removeprefix(f"{self._name}.").removesuffix(".jsonl")
        number = whole_number(text, _NUMBER_DIGITS) if file == f"{self._name}.{text}.jsonl" else None
        return number or 0


def _entry(line: bytes) -> AuditEntry | None:
    """Return what a line says; None of one that is none."""
    if not line or len(line) > _LINE_BYTES_MAX:
        return None
    try:
        return msgspec.json.decode(line, type=AuditEntry)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
