"""Retention whose copies are on their way to the disk: the loop does not wait, and nothing comes twice or is lost."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from broker.log.durability import AwaitedSteps
from broker.retention import RetentionLimits
from broker.scheduled.cancelling import CancelEffect
from broker.scheduled.delay.retention_hold import DelayHold
from broker.scheduled.timer.retention_hold import TimerHold
from broker.transaction import metrics as counted
from broker.transaction.names import State
from broker.transaction.outcomes import End, EndOutcome
from broker.transaction.retention_hold import TransactionHold
from pyddmq.testing import SimSyncs
from tests.integration import delay_tools, timer_tools, transaction_tools
from tests.integration.broker.scheduled.test_cancels_beside import KINDS, Even, slow
from tests.integration.waiting_tools import TOPIC, drive, flush_in_background, retain


def full(made: Any, hold: Any) -> None:
    """Fill four log files, of which two are kept, and look after what waits in the others."""
    for _ in range(8):
        made.store.put("filling", b"y" * 1500)
    made.clock.advance(11)
    made.store.checkpoint()
    made.store.retention.holds.append(hold)
    made.store.retention.limits = RetentionLimits(log_bytes=2 * 4096)


def stuck(tools: Any) -> Any:
    """A store with a message that was refused, since its topic is gone, and whose log file is to go."""
    made = tools.broker()
    made.store.create_topic("filling", 1)
    made.store.create_topic("gone", 1)
    made.name = made.later(b"stuck", topic="gone")
    made.store.topic_changes.delete("gone")
    made.scheduler.advance(5)
    full(made, (TimerHold if tools is timer_tools else DelayHold)(made.delivery, made.metrics))
    flush_in_background(made.store, SimSyncs(made.disk, made.scheduler, Even(), seconds_max=60.0), made.scheduler)
    return made


def begun(made: Any) -> AwaitedSteps[bool]:
    """Have retention begin, up to where a copy is on its way to the disk."""
    steps: AwaitedSteps[bool] = made.store.retention.steps()
    while next(steps) is None:
        pass
    made.scheduler.run_until_idle()
    assert made.store.unsettled
    return steps


@KINDS
def test_loop_goes_on_while_a_copy_is_stored(tools: Any) -> None:
    """Nothing is synced in the turn of the step, and the message comes once, however its retry falls."""
    made = stuck(tools)
    made.disk.fail("sync", path_part="commitlog")
    steps = begun(made)
    assert made.store.failed is None
    made.disk.heal()
    made.store.create_topic("gone", 1)
    # With the copy on its way the next retry would succeed.
    made.scheduler.advance(25)
    assert (made.store.min_offset, made.delivered("gone"), made.pending) == (0, [], 1)
    drive(steps, made.scheduler)
    retain(made.store, made.scheduler)
    made.scheduler.advance(60)
    assert made.store.min_offset > 0
    assert (made.delivered("gone"), made.pending) == ([b"stuck"], 0)


@KINDS
def test_cancel_of_what_is_being_moved_cancels_the_copy(tools: Any) -> None:
    """It waits for the copy, which is durable then, and finds that."""
    made = stuck(tools)
    steps = begun(made)
    cancelling = made.delivery.cancelling("gone", made.name)
    assert drive(cancelling, made.scheduler) is CancelEffect.CANCELLED
    made.store.create_topic("gone", 1)
    drive(steps, made.scheduler)
    retain(made.store, made.scheduler)
    made.scheduler.advance(60)
    assert (made.delivered("gone"), made.pending) == ([], 0)


def test_timer_that_falls_due_while_it_is_moved_comes_once() -> None:
    """Its copy is delivered, and not the record that it takes the place of."""
    made = timer_tools.broker()
    made.store.create_topic("filling", 1)
    made.send(b"x", 12_000)
    full(made, TimerHold(made.timers, made.metrics))
    slow(made)
    made.scheduler.advance(0.5)
    steps = begun(made)
    made.scheduler.advance(1)
    assert made.delivered() == []
    drive(steps, made.scheduler)
    retain(made.store, made.scheduler)
    made.scheduler.advance(60)
    assert (made.delivered(), made.pending) == ([b"x"], 0)
    assert made.store.min_offset > 0


@pytest.mark.parametrize("state", [State.COMMIT, State.ROLLBACK])
@pytest.mark.parametrize("by_check", [False, True])
def test_half_that_is_decided_while_it_is_moved_is_decided_once(state: State, *, by_check: bool) -> None:
    """Its decision waits for the copy: nobody is asked about that any more, also after a restart."""
    made = transaction_tools.broker()
    handle = made.half(b"x")
    made.scheduler.advance(7)
    full(made, TransactionHold(made.transactions, made.metrics))
    flush_in_background(made.store, SimSyncs(made.disk, made.scheduler, Even(), seconds_max=4.0), made.scheduler)
    steps = begun(made)
    reported: list[EndOutcome] = []
    decide(made, handle, state, reported.append, by_check=by_check)
    assert reported == []
    drive(steps, made.scheduler)
    retain(made.store, made.scheduler)
    made.scheduler.advance(10)
    assert [outcome.end for outcome in reported] == [End.OK]
    assert made.metrics.value(counted.PUT_BACK) == 1
    for _ in range(2):
        assert (made.visible(), made.undecided) == ([b"x"] if state is State.COMMIT else [], 0)
        made = made.again()
        made.scheduler.advance(60)
        assert made.transactions.fetch_checks(transaction_tools.GROUP, 10) == []


def decide(made: Any, handle: str, state: State, done: Callable[[EndOutcome], None], *, by_check: bool) -> None:
    """Have a producer decide a transaction."""
    made.transactions.end(
        handle,
        group=transaction_tools.GROUP,
        transaction_id=None,
        state=state,
        from_check=by_check,
        remark="",
        done=done,
    )


def test_file_waits_while_its_folder_is_synced() -> None:
    """A deletion is a step of its own beside the loop; a store that fails meanwhile says so and stops."""
    made = delay_tools.broker()
    made.store.create_topic("filling", 1)
    full(made, DelayHold(made.delays, made.metrics))
    syncs = SimSyncs(made.disk, made.scheduler, Even(), seconds_max=4.0)
    made.store.file_writes.syncs = syncs
    steps = made.store.retention.steps()
    awaited = next(steps)
    assert awaited is not None
    reported: list[bool] = []
    awaited.then(lambda: reported.append(True))
    assert reported == []
    made.disk.fail("sync_folder", path_part="commitlog")
    made.scheduler.advance(5)
    assert reported == [True]
    assert drive(steps, made.scheduler) is False
    assert made.store.failed is not None
    assert TOPIC in made.store.topics
