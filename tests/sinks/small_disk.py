"""A file system with little room, in a namespace of its own: nothing of the machine is mounted over."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from types import TracebackType

from tests.conftest import need

_SCRIPT = 'mount -t tmpfs -o size="$1" tmpfs "$2" && echo mounted && exec sleep infinity'


class SmallDisk:
    """Mounted at a folder as processes see it that are started with `prefix`; we see it at `path`.

    Args:
        folder: An empty folder.
        size_bytes: Its room.
    """

    def __init__(self, folder: Path, size_bytes: int) -> None:
        need(shutil.which("nsenter"), "nsenter (apt install util-linux)")
        self._whose = ["--user", "--preserve-credentials"] if os.geteuid() else []
        apart = ["unshare", "--mount", *(["--user", "--map-root-user"] if os.geteuid() else [])]
        self._holder = subprocess.Popen(
            [*apart, "sh", "-c", _SCRIPT, "sh", str(size_bytes), str(folder)],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        assert self._holder.stdout is not None
        need(self._holder.stdout.readline(), "the right to mount a file system in a namespace (unshare --mount --user)")
        self.path = Path(f"/proc/{self._holder.pid}/root{folder}")

    @property
    def prefix(self) -> list[str]:
        """What stands before the command of a process that shall see it."""
        return ["nsenter", f"--target={self._holder.pid}", "--mount", *self._whose]

    def fill(self) -> None:
        """Leave no room at all."""
        with (self.path / ".ballast").open("wb", buffering=0) as file:
            try:
                while file.write(bytes(65_536)):
                    pass
            except OSError:
                return

    def empty(self) -> None:
        """Give the room back."""
        (self.path / ".ballast").unlink()

    def __enter__(self) -> SmallDisk:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._holder.kill()
        self._holder.communicate()
