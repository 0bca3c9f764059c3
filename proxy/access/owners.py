"""Whose a deduplicating producer's name is: of the principal that first sent under it (D39).

One line per name in a file of the store that is only added to, `sum name principal`; it is written before the send is
answered, so that a kill forgets nothing, and synced within a second: a power loss may forget names that were new then.
A line that does not fit its sum is passed over and counted. The file is rewritten when most of it is about names
that no part of the node knows any more.

There are as many names as the window of deduplication knows (`deduplicationProducers`), and a few more: above that
those go that it has forgotten, and so may be claimed again.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable

from broker.runtime.metrics import Metrics
from broker.runtime.sealed_file import read_whole, write_whole
from broker.runtime.seams import Disk, DiskFile
from broker.runtime.store_metrics import FILES_DAMAGED
from conf.sections.access import ANONYMOUS, is_principal

FILE = "pyddmq/owners"
_SPARE = 1024
"""Names above those of the window that may be kept."""
_LINE = re.compile(rb"([0-9a-f]{8}) ([0-9A-F]{20}) ([!-~]{1,128})\Z")


class Owners:
    """The names of one store."""

    def __init__(
        self, disk: Disk, root: str, metrics: Metrics, *, names_max: int, is_known: Callable[[bytes], bool]
    ) -> None:
        """Read the file.

        Args:
            disk: Where the store is.
            root: Its folder.
            metrics: Counts damage.
            names_max: Names that the window of deduplication may know.
            is_known: Whether it knows a name now.

        Raises:
            OSError: The file cannot be read or written.
        """
        self._disk = disk
        self._path = f"{root}/{FILE}"
        self._names_max = names_max + _SPARE
        self._is_known = is_known
        self._owners: dict[bytes, str] = {}
        self._file: DiskFile | None = None
        self._end = self._lines = 0
        self._unsynced = False
        self._read(metrics)

    def of(self, name: bytes) -> str | None:
        """Return the principal of a name; None without one."""
        return self._owners.get(name)

    def claim(self, name: bytes, principal: str) -> bool:
        """Whether a name is a principal's; one without an owner is from now on.

        Raises:
            OSError: The ownership cannot be written; the name stays without an owner.
        """
        owner = self._owners.get(name)
        if owner is not None:
            return owner == principal
        if len(self._owners) >= self._names_max:
            self._forget()
        file = self._file
        if file is None or self._lines > 2 * self._names_max:
            file = self._write_anew()
        line = _line(name, principal)
        file.write(self._end, [line])
        self._end += len(line)
        self._lines += 1
        self._unsynced = True
        self._owners[name] = principal
        return True

    def sync(self) -> None:
        """Make what was claimed durable. Raises OSError."""
        if self._unsynced and self._file is not None:
            self._unsynced = False
            self._file.sync()

    def close(self) -> None:
        """Let go of the file. Raises OSError."""
        self.sync()
        if self._file is not None:
            self._file.close()
            self._file = None

    def _forget(self) -> None:
        """Forget the owners of names that are unknown elsewhere; where all are known, the eldest."""
        kept = {name: owner for name, owner in self._owners.items() if self._is_known(name)}
        while len(kept) >= self._names_max:
            del kept[next(iter(kept))]
        self._owners = kept

    def _read(self, metrics: Metrics) -> None:
        raw = read_whole(self._disk, self._path)
        if raw is None:
            return
        *lines, torn = raw.split(b"\n")
        for line in lines:
            parts = _LINE.match(line)
            owner = "" if parts is None else parts[3].decode()
            if parts is None or int(parts[1], 16) != zlib.crc32(line[9:]) or not _may_own(owner):
                metrics.counter(FILES_DAMAGED, FILE).add()
                continue
            # A later line of a name is of who took it when its owner before was forgotten.
            self._owners.pop(parts[2], None)
            self._owners[parts[2]] = owner
        if torn or len(lines) != len(self._owners):
            # A line that was torn by a stop: no client was answered that it holds.
            self._write_anew()
        else:
            self._file = self._disk.open(self._path)
            self._end, self._lines = len(raw), len(lines)

    def _write_anew(self) -> DiskFile:
        if self._file is not None:
            self._file.close()
            self._file = None
        lines = [_line(name, owner) for name, owner in self._owners.items()]
        content = b"".join(lines)
        write_whole(self._disk, self._path, content)
        self._file = file = self._disk.open(self._path)
        self._end, self._lines, self._unsynced = len(content), len(lines), False
        return file


def _line(name: bytes, principal: str) -> bytes:
    rest = b"%b %b" % (name, principal.encode())
    return b"%08x %b\n" % (zlib.crc32(rest), rest)


def _may_own(principal: str) -> bool:
    return principal == ANONYMOUS or is_principal(principal)
