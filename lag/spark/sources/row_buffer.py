"""Rows of a task, encoded, until it is known that they may be sent: in memory, above some MiB in a file."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterable, Iterator
from tempfile import SpooledTemporaryFile
from types import TracebackType
from typing import Final, Self

MEMORY_BYTES: Final = 16 * 1024 * 1024
_LENGTH = struct.Struct(">I")


class RowBuffer:
    """Rows in the order in which they were added.

    Attributes:
        rows: How many.
    """

    def __init__(self) -> None:
        self.rows = 0
        self._digest = hashlib.sha256()
        # It is closed at the end of `with`.
        self._file = SpooledTemporaryFile(max_size=MEMORY_BYTES)  # noqa: SIM115

    @property
    def digest(self) -> str:
        """Return 32 hex digits that the same rows in the same order always have."""
        return self._digest.hexdigest()[:32]

    def take(self, rows: Iterable[bytes]) -> None:
        """Add rows."""
        for row in rows:
            data = _LENGTH.pack(len(row)) + row
            self._digest.update(data)
            self._file.write(data)
            self.rows += 1

    def __iter__(self) -> Iterator[bytes]:
        """Return all rows from the first one on."""
        self._file.seek(0)
        for _ in range(self.rows):
            [length] = _LENGTH.unpack(self._file.read(_LENGTH.size))
            yield self._file.read(length)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()
