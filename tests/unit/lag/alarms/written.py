"""What tests read of a file of alarms."""

from __future__ import annotations

import json
from typing import Any

from broker.runtime.seams import Disk
from broker.runtime.state_file import read_whole


def lines_of(disk: Disk, path: str) -> list[Any]:
    """Return the lines; each must be whole."""
    return [json.loads(line) for line in (read_whole(disk, path) or b"").splitlines()]
