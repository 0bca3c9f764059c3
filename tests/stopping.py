"""What ends a run over a simulated disk that `stop_after` has stopped."""

from __future__ import annotations

from random import Random

from pyddmq.testing import SimDisk


def end_run(disk: SimDisk, changes: int, *, power: bool) -> None:
    """End the process, or with `power` the machine, after so many changes; what is lost hangs on their number alone."""
    if power:
        disk.crash(Random(changes))
    else:
        disk.kill()
