"""When the coarser files of the lag journal are made, and its oldest deleted: about once an hour, in steps."""

from __future__ import annotations

from collections.abc import Generator

from broker.runtime.bundle import Runtime
from broker.runtime.metrics import declare
from conf.sections.lag import Tier as TierName
from lag.journal.files import Tier
from lag.journal.tiers import TierLimits, Tiers, TierWork
from lag.journal.writer import FOLDER
from proxy.recording.node import Observed

DELETED = declare("pyddmq_lag_files_deleted_total", "Deleted files of the lag journal: old, or over bytesMax")

ROUND_SECONDS = 3_600.0
_STEPS_MAX = 1_000
"""Of one call; a sync that is under way is waited for until the next round of samples."""
_NAMES: dict[Tier, TierName] = {Tier.RAW: "raw", Tier.MINUTE: "minute", Tier.HOUR: "hour"}
_SHARES = {Tier.RAW: 0.25, Tier.MINUTE: 0.5, Tier.HOUR: 0.25}
"""Which part of bytesMax each tier may take."""


class TierRounds:
    """Runs them for one node.

    Args:
        runtime: The node's.
    """

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._work: TierWork | None = None
        self._tiers: Tiers | None = None
        self._next_at = 0.0
        self._deleted = runtime.metrics.counter(DELETED)

    def round(self, node: Observed, current: str | None) -> Generator[None, None, None]:
        """Do a step of what is due; a round that waits for the disk goes on with the next call.

        Args:
            node: Its configuration says how much is kept.
            current: Path of the file that grows.
        """
        now, runtime = self._runtime.clock.monotonic(), self._runtime
        if self._work is None:
            if now < self._next_at:
                return
            self._next_at = now + ROUND_SECONDS
            lag = node.config.lag
            limits = TierLimits(
                keep_ms={tier: lag.keep_ms(name) for tier, name in _NAMES.items()},
                bytes_max={tier: int(share * lag.bytes_max) for tier, share in _SHARES.items()},
            )
            tiers = self._tiers = Tiers(runtime.disk, f"{node.config.node.data}/{FOLDER}", limits)
            self._work = TierWork(tiers, runtime.clock, runtime.disk, runtime.syncs)
            self._work.begin(current)
        for _ in range(_STEPS_MAX):
            if not self._work.step():
                break
            yield
        if not self._work.is_under_way and self._tiers is not None:
            self._deleted.add(self._tiers.deleted)
            if self._tiers.trouble is not None:
                runtime.limited_log.note("lag_journal_not_tidied", fault=self._tiers.trouble)
            self._work = None

    def abandon(self) -> None:
        """Give up what is under way."""
        if self._work is not None:
            self._work.abandon()
            self._work = None
