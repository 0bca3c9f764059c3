"""The broker inside a program: a store opened with what most programs want."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from random import Random, SystemRandom
from typing import TextIO, cast

import structlog

from broker.feature import Feature
from broker.features import ALL
from broker.options import StoreOptions
from broker.runtime.disk import RealDisk
from broker.runtime.metrics import Metrics
from broker.runtime.seams import Clock, Disk, SystemClock
from broker.store import Store
from broker.tools.interchange import adopted


def open_store(
    folder: str | os.PathLike[str],
    *,
    options: StoreOptions | None = None,
    features: Sequence[Feature] = ALL,
    disk: Disk | None = None,
    clock: Clock | None = None,
    random: Random | None = None,
    metrics: Metrics | None = None,
) -> Store:
    """Open a store, creating it if it does not exist, and recover it.

    What is not given is the machine's: its files, clock and randomness. Unless the program has configured structlog,
    log lines go to stderr: stdout is the program's own.

    Args:
        folder: Its data directory.
        options: Sizes and settings; the sizes of a store that is there already hold without them.
        features: What works on it beyond queues of records; `broker.features.features` sets delay levels and timers.
        disk, clock, random: Where its files, times and ids come from.
        metrics: What it counts in.

    Raises:
        StoreError: As `Store.open`.
    """
    log_to_stderr()
    disk = disk or RealDisk()
    root = os.fspath(folder)
    return Store.open(
        root,
        options=adopted(root, StoreOptions(), disk=disk) if options is None else options,
        features=features,
        disk=disk,
        clock=clock or SystemClock(),
        random=random or SystemRandom(),
        metrics=metrics or Metrics(),
    )


def log_to_stderr() -> None:
    """Send log lines to stderr where the program has not said where they go; structlog's own default is stdout."""
    if not structlog.is_configured():
        structlog.configure(logger_factory=structlog.WriteLoggerFactory(cast("TextIO", _Stderr())))


class _Stderr:
    """The stderr of the moment, which programs and tests may replace."""

    def write(self, text: str) -> int:
        """Write a line."""
        return sys.stderr.write(text)

    def flush(self) -> None:
        """Flush it."""
        sys.stderr.flush()
