"""Wheels whose slots are not a second wide, as RocketMQ's timerPrecisionMs allows."""

from __future__ import annotations

from dataclasses import replace

import pytest

from broker.runtime.metrics import Metrics
from broker.scheduled.timer import metrics as counted
from broker.scheduled.timer.names import PRECISIONS_MS
from broker.scheduled.timer.pending.state import TimerStateFiles
from tests.integration.store_tools import ROOT
from tests.integration.timer_tools import SMALL, broker


@pytest.mark.parametrize("precision_ms", PRECISIONS_MS)
def test_wheel_of_another_precision_loses_no_timer(precision_ms: int) -> None:
    """All are delivered at their moments, those delivered before not again, and nothing is called damaged."""
    made = broker(timers=replace(SMALL, precision_ms=precision_ms))
    made.send(b"done", 1_300)
    made.scheduler.advance(3)
    for delay_ms in (20_000, 33_333, 55_700):
        made.send(b"%d" % delay_ms, delay_ms)
    made.scheduler.advance(1)
    made.close()
    state = TimerStateFiles(ROOT, disk=made.disk, clock=made.clock, metrics=Metrics())
    made.disk.remove(state.own_path)
    file = made.disk.open(state.check_path)
    # Without the mark it is RocketMQ's.
    file.write(56, [bytes(8)])
    file.sync()
    again = broker(made.disk, made.clock)
    assert again.timers.table.wheel.precision_ms == 1000
    again.scheduler.advance(120)
    assert again.delivered() == [b"done", b"20000", b"33333", b"55700"]
    assert again.times()[1:] == [23_000, 36_333, 58_700]
    assert again.metrics.value(counted.REBUILT) == (precision_ms != 1000)
    assert not again.metrics.value(counted.DAMAGED)
