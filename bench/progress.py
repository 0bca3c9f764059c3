"""What is going on, for whoever waits: a line on stderr with the time since the start."""

from __future__ import annotations

import sys
import time

_BEGUN = time.monotonic()


def say(text: str) -> None:
    """Print a line, such as `[ 2:05] 1/3 publish batch 8 redis`."""
    minutes, seconds = divmod(int(time.monotonic() - _BEGUN), 60)
    print(f"[{minutes:2}:{seconds:02}] {text}", file=sys.stderr, flush=True)
