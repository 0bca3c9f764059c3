"""`pyddmq serve` on a disk that reads the commit log slowly for as long as a file is there.

A recovery is then as long as a test needs it, however fast or slow the machine is.
"""

from __future__ import annotations

import argparse
import os
import threading
from pathlib import Path

from broker.runtime.disk import RealDisk, RealFile
from proxy.process.serve import ServeOptions, serve

SLOW = "SLOW_WHILE"
"""Environment variable: path of the file."""
READ_SECONDS = 0.15
"""Of a window of the scan; the node answers in between."""


class SlowFile(RealFile):
    """A file of the commit log."""

    def __init__(self, file: RealFile, slow: Path) -> None:
        super().__init__(file.descriptor)
        self._slow = slow

    def read(self, offset: int, size: int) -> bytes:
        """Read, slowly."""
        if self._slow.exists():
            threading.Event().wait(READ_SECONDS)
        return super().read(offset, size)


class SlowDisk(RealDisk):
    """The real disk, with slow reads of the commit log."""

    def __init__(self, slow: Path) -> None:
        super().__init__()
        self._slow = slow

    def open(self, path: str, *, create: bool = False) -> RealFile:
        """As the real one."""
        file = super().open(path, create=create)
        return SlowFile(file, self._slow) if "/commitlog/" in path else file


def main() -> int:
    """Serve with the configuration and the data that are named."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--config", type=Path, required=True)
    parser.add_argument("--data", required=True)
    given = parser.parse_args()
    options = ServeOptions(config=given.config, data=given.data, json=True)
    return serve(options, disk=SlowDisk(Path(os.environ[SLOW])))


if __name__ == "__main__":
    raise SystemExit(main())
