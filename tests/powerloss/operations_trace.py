"""What the disk saw, written down for whoever looks for a lost ack.

At each cut, in its folder: `cut-0007.txt`, the latest operations since the cut before, each with its moment in
monotonic seconds, which are those of the clients' stamps; `cut-0007-before` and `cut-0007-after`, the files of acks and
committed offsets as the dead process left them and as they came through.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

from pyddmq.testing import SimDisk

FOLLOWED = ("/pyddmq/acks", "/config/consumerOffset")
"""Parts of the paths of the files that are kept."""
LINES_MAX = 20_000
"""The latest are kept, so that a long life takes no more memory than a short one."""


class OperationsTrace:
    """Notes operations, and keeps them and the files at each cut.

    Args:
        folder: Where what is kept goes; made when the first cut comes.
        now: Monotonic seconds.
    """

    def __init__(self, folder: Path, now: Callable[[], float]) -> None:
        self._folder = folder
        self._now = now
        self._lines: list[str] = []
        self._cuts = 0

    def note(self, operation: str, path: str, *details: object) -> None:
        """Note an operation that arrives, of any file."""
        if len(self._lines) >= 2 * LINES_MAX:
            del self._lines[:LINES_MAX]
        self._lines.append(" ".join(map(str, (f"{self._now():.6f}", operation, path, *details))))

    def cut(self, disk: SimDisk, lose: Callable[[], None]) -> None:
        """Have `lose` take the power, and keep what was there before and after it."""
        self._cuts += 1
        stem = self._folder / f"cut-{self._cuts:04d}"
        _copy(disk, Path(f"{stem}-before"))
        lose()
        _copy(disk, Path(f"{stem}-after"))
        self._lines.append(f"{self._now():.6f} cut")
        Path(f"{stem}.txt").write_text("\n".join(self._lines) + "\n")
        self._lines.clear()


def _copy(disk: SimDisk, folder: Path) -> None:
    """Write the followed files to a folder of the real disk, flat."""
    folder.mkdir(parents=True)
    for path in _files(disk, ""):
        if any(part in path for part in FOLLOWED):
            file = disk.open(path)
            (folder / path.strip("/").replace("/", "__")).write_bytes(file.read(0, file.size()))
            file.close()


def _files(disk: SimDisk, folder: str) -> Iterator[str]:
    for name in disk.list(folder or "/"):
        path = os.path.join(folder or "/", name)
        if disk.is_folder(path):
            yield from _files(disk, path)
        else:
            yield path
