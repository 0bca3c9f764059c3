"""A copy of a store with timers holds them all, without the files that are made anew."""

from __future__ import annotations

import pytest

from broker.runtime.file_writes import at_once
from broker.runtime.metrics import Metrics
from broker.runtime.rate_limited_log import RateLimitedLog
from broker.runtime.steps import run_now
from broker.scheduled.timer import metrics as counted
from broker.scheduled.timer.pending.state import TimerCheck, TimerStateFiles
from broker.scheduled.timer.timers import Timers
from broker.tools.check import Severity, StoreCheck
from pyddmq.testing import ManualClock, ManualScheduler
from tests.integration.store_tools import ROOT, bodies, open_store
from tests.integration.timer_tools import SMALL, START_MS, TOPIC, Broker, broker
from upstream.tools.backup import Backup, restore
from upstream.tools.store_check import check_data

BACK = "/back"


def _restored(made: Broker) -> tuple[list[bytes | None], Metrics]:
    """Copy, restore, and deliver everything there; return what is delivered in the end."""
    disk, clock, metrics = made.disk, made.clock, Metrics()
    Backup(ROOT, "/copy", source=disk, disk=disk, clock=clock).make()
    found = list(check_data(StoreCheck("/copy", disk, clock)))
    assert [finding for finding in found if finding.severity is not Severity.NOTE] == []
    restore("/copy", BACK, disk=disk, clock=ManualClock())
    store = open_store(disk, root=BACK, clock=clock, metrics=metrics, timers=SMALL, seed=99)
    scheduler = ManualScheduler(clock)
    timers = run_now(
        Timers.opening(
            store, disk=disk, clock=clock, scheduler=scheduler, metrics=metrics, limited_log=RateLimitedLog(clock)
        )
    )
    timers.start()
    scheduler.advance(3_600)
    return list(bodies(store, TOPIC).values()), metrics


@pytest.mark.parametrize("closed", [True, False])
def test_restored_store_delivers_what_was_pending(*, closed: bool) -> None:
    """Near and far ones, once each; not those that were delivered or cancelled; nothing is called damaged."""
    made = broker()
    made.send(b"done", 500)
    gone = made.send(b"gone", 60_000)
    made.scheduler.advance(7)
    made.timers.cancel(TOPIC, gone)
    for delay_ms in (5_000, 60_000, 500_000):
        made.send(b"%d" % delay_ms, delay_ms)
    made.scheduler.advance(1)
    if closed:
        made.close()
    found, metrics = _restored(made)
    assert found == [b"done", b"5000", b"60000", b"500000"]
    assert not metrics.value(counted.DAMAGED)
    assert not metrics.value(counted.LOST)


def test_what_rocketmq_delivered_does_not_come_again() -> None:
    """Where its deliveries end is known from its checkpoint alone, and goes into the copy."""
    made = broker(start=False)
    made.send(b"theirs", 1_000)
    made.send(b"ours", 90_000)
    made.store.flush()
    made.clock.advance(10)
    state = TimerStateFiles(ROOT, disk=made.disk, clock=made.clock, metrics=Metrics())
    check = TimerCheck(START_MS + 10_000, 104, 2)
    writing = state.writing(check, decided_from=0, refused=[], pending={}, floor=(0, 0), clean=True)
    at_once(made.disk, writing)
    made.disk.remove(state.own_path)
    file = made.disk.open(state.check_path)
    # Without the mark it is RocketMQ's.
    file.write(56, [bytes(8)])
    file.sync()
    assert _restored(made)[0] == [b"ours"]
