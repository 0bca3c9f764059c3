"""Small files that are replaced as a whole, and JSON of our own with its checksum: `{"crc32": "...", "data": ...}`."""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from typing import Any

from broker.errors import REPAIR_ADVICE, StoreUnreadable
from broker.runtime.disks.unreadable import read_around
from broker.runtime.file_writes import AT_ONCE, TURN, FileWrite, Steps, SyncFailed, at_once
from broker.runtime.seams import Disk

NOT_PARSED = (ValueError, KeyError, TypeError, RecursionError)
"""Errors of invalid JSON, of JSON of another shape, and of JSON that is nested too deep to be honest."""


def sealed(data: Any) -> bytes:
    """Return data as it is in a file."""
    return _sealed(_compact(data))


def _sealed(body: bytes) -> bytes:
    return b'{"crc32":"%b","data":%b}\n' % (sum_text(body).encode("ascii"), body)


def unsealed(raw: bytes) -> Any:
    """Return the data of a file's bytes.

    Raises:
        ValueError: They are damaged: no such JSON, or its sum is wrong.
    """
    try:
        outer = json.loads(raw)
        data = outer["data"]
        if outer["crc32"] == sum_text(_compact(data)):
            return data
    except NOT_PARSED as error:
        raise ValueError("no JSON with a checksum") from error
    raise ValueError("its checksum is wrong")


def sealed_lines(raw: bytes) -> Iterator[Any]:
    """Yield the data of the lines of a file to which `sealed` ones were appended, up to the first damaged one."""
    for line in raw.splitlines():
        try:
            data = unsealed(line)
        except ValueError:
            return
        yield data


def sum_text(data: bytes) -> str:
    """Return the CRC-32 of bytes as 8 hex digits."""
    return f"{zlib.crc32(data):08x}"


def _compact(data: Any) -> bytes:
    return json.dumps(data, separators=(",", ":"), sort_keys=True).encode("ascii")


def encoding(data: Any, *, sort_keys: bool = False, ensure_ascii: bool = True) -> Steps[str]:
    """Return data as JSON without spaces, in steps: what is long in it is encoded some entries at a time."""
    dumps = partial(json.dumps, separators=(",", ":"), sort_keys=sort_keys, ensure_ascii=ensure_ascii)
    if not _is_long(data):
        return dumps(data)
    is_table = isinstance(data, dict)
    entries = list(data.items()) if is_table else data
    if is_table and sort_keys:
        entries.sort()
    parts = []
    if len(entries) > AT_ONCE:
        for at in range(0, len(entries), AT_ONCE):
            yield TURN
            some = entries[at : at + AT_ONCE]
            parts.append(dumps(dict(some) if is_table else some)[1:-1])
    else:
        for name, value in entries:
            text = yield from encoding(value, sort_keys=sort_keys, ensure_ascii=ensure_ascii)
            parts.append(f"{dumps(name)}:{text}")
    return f"{{{','.join(parts)}}}" if is_table else f"[{','.join(parts)}]"


def _is_long(data: Any, depth: int = 2) -> bool:
    """Whether a table or list has many entries, or a table has something so long in it, not far below."""
    if not isinstance(data, dict | list):
        return False
    return len(data) > AT_ONCE or (
        depth > 0 and isinstance(data, dict) and any(_is_long(each, depth - 1) for each in data.values())
    )


def write_whole(disk: Disk, path: str, data: bytes, *, backup: str | None = None) -> None:
    """Put a file in place in one step; durable when this returns.

    Args:
        disk: Where.
        path: The file; its folder exists.
        data: Its new content.
        backup: Where the present version goes first, if there is one.

    Raises:
        OSError: Nothing, or only the move to `backup`, happened.
    """
    at_once(disk, writing_whole(disk, path, data, backup=backup))


def writing_whole(disk: Disk, path: str, data: bytes, *, backup: str | None = None) -> FileWrite:
    """`write_whole` in steps. Raises the same."""
    spare = f"{path}.new"
    folder = path.rpartition("/")[0]
    file = disk.open(spare, create=True)
    try:
        file.truncate(0)
        file.write(0, [data])
        yield file
    except OSError as error:
        file.close()
        disk.remove(spare)
        if isinstance(error, SyncFailed):
            # The incomplete file is never read, so a full disk can be waited for.
            raise OSError(error.errno, error.strerror, error.filename) from error
        raise
    file.close()
    if backup is not None and disk.exists(path):
        disk.replace(path, backup)
        yield folder
    disk.replace(spare, path)
    yield folder


def read_whole(disk: Disk, path: str) -> bytes | None:
    """Content of a file, None when it is not there; what the disk does not give out is zeros, which no file is."""
    if not disk.exists(path):
        return None
    try:
        file = disk.open(path)
    except FileNotFoundError:
        # Its owner is putting a new version in place; a reader without the lock sees that.
        return None
    with closing(file):
        return read_around(file, 0, file.size())[0]


class SealedFile:
    """JSON of our own with its checksum: `{"crc32": "...", "data": ...}`."""

    def __init__(self, disk: Disk, path: str) -> None:
        self._disk = disk
        self.path = path

    def load(self) -> Any:
        """Return the data; None when the file is missing.

        Raises:
            StoreUnreadable: It is damaged.
        """
        raw = read_whole(self._disk, self.path)
        if raw is None:
            return None
        try:
            return unsealed(raw)
        except ValueError as error:
            raise StoreUnreadable(f"{self.path} is damaged (its checksum is wrong); {REPAIR_ADVICE}") from error

    def save(self, data: Any) -> None:
        """Write the data durably. Raises OSError."""
        at_once(self._disk, self.writing(data))

    def writing(self, data: Any) -> FileWrite:
        """`save` in steps. Raises the same."""
        body = (yield from encoding(data, sort_keys=True)).encode("ascii")
        yield from writing_whole(self._disk, self.path, _sealed(body))
