"""Kills around operations of the disk, by the node's own disk (`dying_disk`)."""

from __future__ import annotations

import json
import os
import sys
import types
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.crash.dying_disk import ORDER, PLACES
from tests.crash.moments import Moment, Phase

OPERATIONS = {
    "write": 40, "sync": 40, "create": 1, "replace": 2, "sync_folder": 2, "allocate": 1, "truncate": 1, "remove": 0,
}  # fmt: skip
"""What the node does to its disk; the number is as in `by_syscall.CALLS`."""
PARTLY = ("write", "allocate")
RECOVERY_OPERATIONS_MAX = 12


class DiskReaper:
    """Kills by order; a call is named `operation place`."""

    name = "disk operation"
    calls: Mapping[str, int] = types.MappingProxyType(
        {
            f"{operation} {place}": count
            for operation, count in OPERATIONS.items()
            for place in PLACES
            if place != "within" or operation in PARTLY
        }
    )
    command: Sequence[str] = (sys.executable, "-m", "tests.crash.dying_disk")

    def __init__(self, folder: Path) -> None:
        """Keep the order in `folder`."""
        self._order = folder / "order.json"
        os.environ[ORDER] = str(self._order)

    def prefix(self, moment: Moment) -> Sequence[str]:
        self._give(moment, moment.ordinal % min(RECOVERY_OPERATIONS_MAX, self.calls[moment.call] + 1) + 1)
        return ()

    def arm(self, pid: int, moment: Moment) -> None:
        assert moment.phase is not Phase.RECOVERY
        self._give(moment, moment.ordinal)

    def disarm(self) -> None:
        self._order.unlink(missing_ok=True)

    def _give(self, moment: Moment, ordinal: int) -> None:
        operation, place = moment.call.split()
        new = self._order.with_suffix(".new")
        new.write_text(json.dumps({"operation": operation, "place": place, "ordinal": ordinal}))
        new.rename(self._order)
