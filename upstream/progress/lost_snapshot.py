"""`pyddmq/acks_lost.json`: the ack journal lost its snapshot, so a group that is known nowhere may not be a new one.

Such a group begins at the oldest message (nothing may be skipped) until every configured group has its place in the
journal again. The file keeps that over a kill in between, and over a repair, which knows no configuration.
"""

from __future__ import annotations

from broker.errors import NO_SPACE, StoreUnreadable
from broker.runtime.seams import Disk
from broker.runtime.state_file import SealedFile

FILE = "pyddmq/acks_lost.json"


class LostSnapshot:
    """The file of one store."""

    def __init__(self, root: str, *, disk: Disk) -> None:
        self._folder = f"{root}/pyddmq"
        self._path = f"{root}/{FILE}"
        self._disk = disk
        self._file = SealedFile(disk, self._path)

    @property
    def noted(self) -> bool:
        """Whether it is there; a damaged one says the same. Raises OSError."""
        try:
            return self._file.load() is not None
        except StoreUnreadable:
            return True

    def note(self) -> None:
        """Write it, durably; a full disk leaves it to this process to know. Raises OSError."""
        try:
            self._file.save({"version": 1})
        except OSError as error:
            if error.errno not in NO_SPACE:
                raise

    def forget(self) -> bool:
        """Delete it, where it is; False when that is to be tried again."""
        try:
            if self._disk.exists(self._path):
                self._disk.remove(self._path)
                self._disk.sync_folder(self._folder)
        except OSError:
            return False
        return True
