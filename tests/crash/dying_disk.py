"""A disk over the real one that kills its own process before, within or after its N-th operation of a kind.

It needs no tools: the same kills as strace's where there is none, and two that strace has not, in the middle of a write
and right after an operation. The order to die comes as a file beside the data; the counting begins when it is seen.
"""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from broker.runtime.disk import RealDisk, RealFile
from broker.runtime.seams import Buffer

ORDER = "PYDDMQ_TESTS_ORDER"
"""Environment variable: path of the order."""
PLACES = ("before", "within", "after")

Result = TypeVar("Result")


class Order:
    """Waits for the order and carries it out."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._wanted: tuple[str, str] | None = None
        self._left = 0

    def step(self, operation: str, whole: Callable[[], Result], partly: Callable[[], Any] | None = None) -> Result:
        """Do `whole`, or die around it; `partly` is what may have been done of it."""
        if self._wanted is None and self._path.exists():
            order = json.loads(self._path.read_text())
            self._wanted, self._left = (order["operation"], order["place"]), order["ordinal"]
        if self._wanted is None or self._wanted[0] != operation:
            return whole()
        self._left -= 1
        if self._left:
            return whole()
        if self._wanted[1] == "within" and partly is not None:
            partly()
        elif self._wanted[1] != "before":
            whole()
        os.kill(os.getpid(), signal.SIGKILL)
        raise AssertionError("alive after SIGKILL")


class DyingFile(RealFile):
    """A file of a `DyingDisk`."""

    def __init__(self, file: RealFile, order: Order) -> None:
        super().__init__(file.descriptor)
        self._order = order

    def write(self, offset: int, buffers: Sequence[Buffer]) -> None:
        """Write, or die before, in the middle of, or after it."""
        data = b"".join(buffers)
        whole, half = super().write, data[: len(data) // 2]
        self._order.step("write", lambda: whole(offset, [data]), lambda: whole(offset, [half]))

    def sync(self) -> None:
        """Sync, or die."""
        self._order.step("sync", super().sync)

    def truncate(self, size: int) -> None:
        """Truncate, or die."""
        whole = super().truncate
        self._order.step("truncate", lambda: whole(size))

    def allocate(self, size: int) -> None:
        """Allocate, or die, with half of it in between."""
        whole = super().allocate
        self._order.step("allocate", lambda: whole(size), lambda: whole(size // 2))


class DyingDisk(RealDisk):
    """The real disk, and the order to die."""

    def __init__(self, order: Order) -> None:
        super().__init__()
        self._order = order

    def open(self, path: str, *, create: bool = False) -> RealFile:
        """Open, or die around the creation of a file."""
        whole = super().open
        if create and not os.path.exists(path):
            return DyingFile(self._order.step("create", lambda: whole(path, create=True)), self._order)
        return DyingFile(whole(path, create=create), self._order)

    def replace(self, source: str, target: str) -> None:
        """Rename, or die."""
        whole = super().replace
        self._order.step("replace", lambda: whole(source, target))

    def remove(self, path: str) -> None:
        """Delete, or die."""
        whole = super().remove
        self._order.step("remove", lambda: whole(path))

    def sync_folder(self, path: str) -> None:
        """Sync a folder, or die."""
        whole = super().sync_folder
        self._order.step("sync_folder", lambda: whole(path))


def main() -> int:
    """Be `pyddmq serve` on such a disk."""
    import argparse

    from proxy.process.serve import ServeOptions, serve

    parser = argparse.ArgumentParser()
    parser.add_argument("--config", type=Path, required=True)
    parser.add_argument("--data", required=True)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    options = ServeOptions(config=given.config, data=given.data, json=given.json)
    return serve(options, disk=DyingDisk(Order(Path(os.environ[ORDER]))))


if __name__ == "__main__":
    raise SystemExit(main())
