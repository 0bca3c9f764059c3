"""A node's opening, driven on its loop in steps of bounded work, so that its ports answer meanwhile.

No thread: the steps are those of `Store.opening` and `Progress.opening`, and a turn of the loop comes between any two.
A cancelled start leaves the store as a kill would; the next start recovers again.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import TypeVar

import structlog

from broker.opening.recovery import RecoveryProgress
from broker.runtime.async_steps import run_async
from broker.runtime.metrics import Metrics, declare
from broker.runtime.seams import Clock
from broker.runtime.steps import StepWait, noted
from proxy.node.views import RecoveryView

LOG_SECONDS = 5.0
"""How often a long recovery says how far it is."""

SCANNED = declare(
    "pyddmq_recovery_scanned_bytes", "Bytes of the log that the recovery of this start has read.", kind="gauge"
)
TO_SCAN = declare(
    "pyddmq_recovery_total_bytes", "Bytes of the log that the recovery of this start must read.", kind="gauge"
)

T = TypeVar("T")
_log = structlog.get_logger(__name__)


class Startup:
    """Runs the steps of one opening and knows how far it is."""

    def __init__(self, clock: Clock, metrics: Metrics, *, pause_seconds: float = 0.0) -> None:
        self._pause_seconds = pause_seconds
        self._clock = clock
        self._scanned = metrics.counter(SCANNED)
        self._to_scan = metrics.counter(TO_SCAN)
        self._progress = RecoveryProgress(0, 0)
        self._phase = "log"
        self._began = clock.monotonic()
        self._said = self._began

    async def open_log(self, steps: Generator[RecoveryProgress, None, T]) -> T:
        """Run the store's steps; return what they return. Closes them when it is cancelled."""
        self._began = self._said = self._clock.monotonic()
        opened = await run_async(noted(steps, self._note), pause_seconds=self._pause_seconds)
        self._finish()
        return opened

    async def run(self, phase: str, steps: Generator[StepWait | None, None, T]) -> T:
        """Run the steps of a later phase (see `RecoveryView`); return what they return.

        Closes them when it is cancelled.
        """
        self._phase = phase
        return await run_async(steps, pause_seconds=self._pause_seconds)

    @property
    def view(self) -> RecoveryView:
        """How far it is now."""
        scanned, total = self._progress.scanned_bytes, self._progress.total_bytes
        elapsed = self._clock.monotonic() - self._began
        if self._phase != "log":
            scanned = total
        known = scanned > 0 and elapsed > 0
        return RecoveryView(
            phase=self._phase,
            scanned_bytes=scanned,
            total_bytes=total,
            percent=round(100 * scanned / total, 1) if total else (100.0 if self._phase != "log" else 0.0),
            eta_seconds=round(elapsed * (total - scanned) / scanned, 1) if known else None,
        )

    def _note(self, progress: RecoveryProgress) -> None:
        self._progress = progress
        self._scanned.value, self._to_scan.value = progress.scanned_bytes, progress.total_bytes
        now = self._clock.monotonic()
        if now - self._said >= LOG_SECONDS:
            self._said = now
            view = self.view
            _log.info(
                "recovering",
                percent=view.percent,
                scanned_bytes=view.scanned_bytes,
                total_bytes=view.total_bytes,
                records=progress.records,
                eta_seconds=view.eta_seconds,
            )

    def _finish(self) -> None:
        seconds = self._clock.monotonic() - self._began
        _log.info(
            "recovered",
            seconds=round(seconds, 3),
            scanned_bytes=self._progress.scanned_bytes,
            records=self._progress.records,
        )
