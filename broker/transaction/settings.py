"""When undecided halves are checked and discarded, by RocketMQ's names and defaults; what transactions are handed."""

from __future__ import annotations

from dataclasses import dataclass

DAY_SECONDS = 86_400.0


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckSettings:
    """All may be changed while the broker runs.

    Attributes:
        timeout_ms: Age of a half at its first check, where it asks for no other: RocketMQ's transactionTimeOut.
        interval_ms: Time between two checks of a half: transactionCheckInterval.
        checks_max: Checks after which a half is discarded: transactionCheckMax.
        age_seconds_max: Uptime of the broker after which a half is discarded that was never decided (D32).
    """

    timeout_ms: int = 6_000
    interval_ms: int = 30_000
    checks_max: int = 15
    age_seconds_max: float = 7 * DAY_SECONDS
