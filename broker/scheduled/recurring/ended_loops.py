"""Which loops RocketMQ ended; `broker.scheduled.recurring.resumed_loops` has them continue."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import structlog

from broker.errors import StoreUnreadable
from broker.feature import Feature
from broker.runtime.sealed_file import SealedFile
from broker.runtime.seams import Disk
from broker.scheduled.recurring.occurrence import LOOP_NAME

log = structlog.get_logger()


class Interrupted:
    """`pyddmq/loops.json`: commit-log offsets of occurrences behind which nothing waits yet."""

    def __init__(self, root: str, *, disk: Disk) -> None:
        self._disk = disk
        self._root = root
        self._file = SealedFile(disk, f"{root}/pyddmq/loops.json")

    def load(self) -> list[int]:
        """Return what is noted; nothing where the file is damaged, which is said. Raises OSError."""
        try:
            content: Any = self._file.load()
        except StoreUnreadable as error:
            log.error("interrupted_loops_unknown", error=str(error))
            return []
        noted = content if isinstance(content, list) else []
        return [physical for physical in noted if isinstance(physical, int) and physical >= 0]

    def note(self, physicals: Collection[int]) -> None:
        """Add some, durably. Raises OSError."""
        if physicals:
            self._file.save(sorted({*self.load(), *physicals}))

    def forget(self) -> None:
        """All of them continue. Raises OSError."""
        if self._disk.exists(self._file.path):
            self._disk.remove(self._file.path)
            self._disk.sync_folder(f"{self._root}/pyddmq")


def _note(root: str, physicals: Sequence[int], *, disk: Disk) -> None:
    """Note the occurrences that recovery found delivered by RocketMQ. Raises OSError."""
    Interrupted(root, disk=disk).note(physicals)


# What is delivered here does not have the property any more.
LOOP_FEATURE = Feature(name="loop", needs=("timer",), mark=LOOP_NAME + b"\x01", note_marked=_note)
"""Recurring messages, as `Store.open` takes them."""
