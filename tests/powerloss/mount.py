"""Mounts the forgetful file system in a process of its own."""

from __future__ import annotations

import importlib.util
import itertools
import os
import subprocess
import sys
from pathlib import Path


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

    def cut(self) -> None:
        """Lose the power; everybody who used the file system is dead."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"cut {next(self._seeds)}\n")
        self._process.stdin.flush()
        self._expect("cut")

    def close(self) -> None:
        """Unmount."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(30)
        self._process.stdout.close()

    def _expect(self, word: str) -> None:
        assert self._process.stdout is not None
        line = self._process.stdout.readline().strip()
        if line != word:
            raise AssertionError(f"the file system said {line!r} instead of {word!r}")


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
