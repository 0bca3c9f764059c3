"""Mounts the forgetful file system in a process of its own."""

from __future__ import annotations

import importlib.util
import itertools
import os
import subprocess
import sys
from pathlib import Path

from tests.simulation.facts import PromiseBroken

LATE_WRITES_MAX = 256
"""The writes of a turn or two: so many may come before a sync that is due, and waits for one that is running.

The first turn after a start, on a machine that is very busy, had 87. A forgotten sync has those of a whole life.
"""


class Mount:
    """A mounted forgetful file system.

    Args:
        folder: Where the mount point is made.
        seed: Of what survives the cuts.
    """

    def __init__(self, folder: Path, seed: int) -> None:
        self.path = folder / "disk"
        self.path.mkdir()
        self._seeds = itertools.count(seed * 1_000_000)
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.powerloss.filesystem", str(self.path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._expect("mounted")

    def cut(self) -> float:
        """Lose the power; everybody who used the file system is dead.

        Returns:
            When the oldest write of the ack journal that went with it was made, in monotonic seconds.

        Raises:
            PromiseBroken: 2. The node went on working with an entry of the journal older than D9 allows.
        """
        assert self._process.stdin is not None
        self._process.stdin.write(f"cut {next(self._seeds)}\n")
        self._process.stdin.flush()
        since, late = self._expect("cut")
        if int(late) > LATE_WRITES_MAX:
            raise PromiseBroken(2, f"{late} writes came while an entry of the ack journal waited for more than 100 ms")
        return float(since)

    def spoil(self, path: str, page: int) -> None:
        """Have a page of 4 KiB of a file, below the mount point, be unreadable; nobody may use the file now."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"bad /{path} {page}\n")
        self._process.stdin.flush()
        self._expect("bad")

    def close(self) -> None:
        """Unmount."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(30)
        self._process.stdout.close()

    def _expect(self, word: str) -> list[str]:
        assert self._process.stdout is not None
        said, *rest = self._process.stdout.readline().split() or [""]
        if said != word:
            raise AssertionError(f"the file system said {said!r} instead of {word!r}")
        return rest


def missing() -> str:
    """Say what is missing for a mount; empty when nothing is."""
    if importlib.util.find_spec("pyfuse3") is None:
        return (
            "pyfuse3 is not installed: make powerloss installs the extra `fuse`, for which libfuse3-dev must be there"
        )
    try:
        os.close(os.open("/dev/fuse", os.O_RDWR))
    except OSError as error:
        return f"no FUSE here: {error}"
    return ""
