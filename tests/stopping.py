"""What ends a run over a simulated disk that `stop_after` has stopped."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from pyddmq.testing import SimDisk


def end_run(disk: SimDisk, changes: int, *, power: bool) -> None:
    """End the process, or with `power` the machine, after so many changes; what is lost hangs on their number alone."""
    if power:
        disk.crash(Random(changes))
    else:
        disk.kill()


def lose_files(disk: SimDisk, root: str, files: Sequence[str], changes: int) -> None:
    """Remove the first few of a store's files, as many as the number of changes says: none, one, ... all."""
    for name in files[: changes % (len(files) + 1)]:
        if disk.exists(f"{root}/{name}"):
            disk.remove(f"{root}/{name}")
