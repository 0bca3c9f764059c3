"""About how many samples a report is of, by the files alone: what Spark's own JVM is started with depends on it.

Most of the processor time of a small report is the JVM's second compiler, at code that has run when it is done. Of
millions of samples it pays. So it is left out where there are few, and the garbage is then collected in one thread.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from typing import Final

from broker.runtime.disk import RealDisk
from lag.report.options import Input
from lag.report.reading import samples_at_most

EXPORTED_BYTES: Final = 3
"""Of a sample, at least, in exported Parquet, as they were seen (docs/performance.md)."""
FEW: Final = 3_000_000
"""Up to so many samples the second compiler costs more than it brings."""


def are_few(given: Input, since_ms: int, until_ms: int) -> bool:
    """Whether there are few samples from one moment to before another. What is not on this machine's disks is much."""
    if any("://" in place for place in given.exported):
        return False
    journals = samples_at_most(RealDisk(read_only=True), given.journals, since_ms, until_ms)
    exported = sum(size for place in given.exported for size in _exported_sizes(place, since_ms, until_ms))
    return journals + exported // EXPORTED_BYTES <= FEW


def _exported_sizes(place: str, since_ms: int, until_ms: int) -> Iterator[int]:
    day, last = _day(since_ms), _day(until_ms)
    while day <= last:
        folder = f"{place}/queues/date={day.isoformat()}"
        for name in os.listdir(folder) if os.path.isdir(folder) else ():
            yield _size(f"{folder}/{name}")
        day += timedelta(days=1)


def _size(path: str) -> int:
    try:
        return os.stat(path).st_size
    except OSError:
        return 0


def _day(time_ms: int) -> date:
    return datetime.fromtimestamp(max(0, time_ms) / 1000, UTC).date()
