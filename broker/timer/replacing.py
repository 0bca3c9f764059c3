"""What becomes of a pending timer once the record that takes its place is durable: of a cancel, or of a copy."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.errors import StoreError
from broker.timer.log import TimersDamaged

if TYPE_CHECKING:
    from broker.timer.timers import Timers


def replaced(timers: Timers, physical: int, error: StoreError | None) -> None:
    """Take a timer out that was held since that record was appended, or go on with it after an error; never raises."""
    try:
        if error is None:
            timers.take_out(physical)
    except (TimersDamaged, OSError):
        # The next step finds that the timer log is damaged, or cannot be read; it is not delivered meanwhile.
        timers.due.superseded.add(physical)
    timers.due.let_go(physical)
