"""Alarms as JSON lines in a file, each exactly once.

Who writes was stopped somewhere between a line and the note that it was taken. So the end of the file is read back
before the first line of a process: what is there is not written again, and a last line that is not whole is cut.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Final

from broker.runtime.file_writes import Steps, at_once
from broker.runtime.seams import Disk, DiskFile

TAIL_BYTES: Final = 4 << 20
"""So much of the end is read back: more than a full outbox takes."""


class AlarmLines:
    """Appends alarms to one file; opens it with the first of them.

    Args:
        disk: Where.
        path: The file; its folder is made when it is not there.
    """

    def __init__(self, disk: Disk, path: str) -> None:
        self._disk = disk
        self._path = path
        self._file: DiskFile | None = None
        self._size = 0
        self._there: set[str] = set()

    def append(self, events: Sequence[dict[str, Any]]) -> frozenset[str]:
        """Write those that are not there, durably.

        Returns:
            The keys of all of them.

        Raises:
            OSError: The disk refused; the file is read back before the next try.
        """
        return at_once(self._disk, self.appending(events))

    def appending(self, events: Sequence[dict[str, Any]]) -> Steps[frozenset[str]]:
        """`append` in steps. Returns and raises the same."""
        try:
            file = self._file or (yield from self._opening())
            lines = [_line(event) for event in events if event["key"] not in self._there]
            if lines:
                file.write(self._size, lines)
            # Also of lines that are there already: nobody knows whether whoever wrote them came to sync them.
            yield file
        except OSError:
            self.close()
            raise
        self._size += sum(len(line) for line in lines)
        keys = frozenset(str(event["key"]) for event in events)
        self._there |= keys
        return keys

    def close(self) -> None:
        """Close the file; the next line opens it again."""
        file, self._file = self._file, None
        if file is not None:
            file.close()

    def _opening(self) -> Steps[DiskFile]:
        folder = self._path.rpartition("/")[0]
        if folder:
            self._disk.make_folder(folder)
        is_new = not self._disk.exists(self._path)
        file = self._file = self._disk.open(self._path, create=True)
        if is_new and folder:
            yield folder
        size = file.size()
        tail = file.read(max(0, size - TAIL_BYTES), min(size, TAIL_BYTES))
        whole, _, torn = tail.rpartition(b"\n")
        if torn:
            size -= len(torn)
            file.truncate(size)
        self._size = size
        self._there = {key for line in whole.split(b"\n") if (key := _key(line)) is not None}
        return file


def _line(event: dict[str, Any]) -> bytes:
    return json.dumps(event, ensure_ascii=False).encode("utf-8", "backslashreplace") + b"\n"


def _key(line: bytes) -> str | None:
    """Return the key that a line has; None: it is none of ours."""
    try:
        key = json.loads(line)["key"]
    except (ValueError, TypeError, KeyError, RecursionError):
        return None
    return key if isinstance(key, str) else None
