"""Cancels whose record is on its way to the disk: the loop does not wait, and the answer is definite all the same."""

from __future__ import annotations

from functools import partial
from random import Random
from typing import Any

import pytest

from broker.errors import StoreFailed
from broker.log.durability import Awaited, AwaitedSteps
from broker.log.put import Put
from broker.retention import RetentionLimits
from broker.runtime.steps import StepsEnd, step
from broker.scheduled.cancelling import CancelEffect
from broker.scheduled.delay.retention_hold import DelayHold
from broker.scheduled.recurring.cancel import cancelling_delay
from broker.scheduled.timer.retention_hold import TimerHold
from broker.scheduled.timer.stages import TimerPipelineStage
from pyddmq.testing import SimSyncs
from tests.integration import delay_tools, loop_tools, timer_tools
from tests.integration.store_tools import HOST
from tests.integration.waiting_tools import TOPIC, WaitingStore, drive, flush_in_background, let_pass

CANCELLED, TOO_LATE = CancelEffect.CANCELLED, CancelEffect.TOO_LATE
SYNC_SECONDS = 2.0
KINDS = pytest.mark.parametrize("tools", [delay_tools, timer_tools], ids=["level", "timer"])


class Even(Random):
    """Makes every sync of a `SimSyncs` take half its longest."""

    def random(self) -> float:
        """Return the same number always."""
        return 0.5


def slow(made: WaitingStore) -> Any:
    """Have each sync from now on take SYNC_SECONDS, beside the loop."""
    made.flush_in_background(Even(), seconds_max=2 * SYNC_SECONDS)
    return made


def behind(made: WaitingStore) -> None:
    """Leave the index so far behind that a look at it takes some steps."""
    other = made.store.create_topic("other", 1)
    made.store.append([Put(other, 0, b"x", b"KEYS\x01k\x02")] * 1000, born_ms=0, born_host=HOST)
    made.store.flush()


def begun(made: Any, name: str) -> tuple[AwaitedSteps[CancelEffect], Awaited]:
    """Begin a cancel, up to where it waits for the disk."""
    made.scheduler.run_until_idle()
    steps = made.delivery.cancelling(TOPIC, name)
    while (awaited := next(steps)) is None:
        pass
    return steps, awaited


@KINDS
@pytest.mark.parametrize("cancelled", [b"a", b"b", b"c"])
def test_loop_goes_on_while_a_cancel_is_stored(tools: Any, cancelled: bytes) -> None:
    """Nothing is synced by the step; what falls due meanwhile is delivered, but for what is cancelled."""
    made = tools.broker()
    names = {body: made.later(body) for body in (b"a", b"b", b"c")}
    slow(made).disk.fail("sync", path_part="commitlog")
    steps, awaited = begun(made, names[cancelled])
    assert (made.store.failed, awaited.is_reported) == (None, False)
    made.disk.heal()
    made.scheduler.advance(SYNC_SECONDS - 0.5)
    assert (made.store.pending, awaited.is_reported, made.delivered()) == (True, False, [])
    made.scheduler.advance(1)
    assert awaited.is_reported
    made.scheduler.advance(60)
    assert drive(steps, made.scheduler) is CANCELLED
    others = [body for body in names if body != cancelled]
    assert (made.delivered(), made.pending) == (others, 0)
    again = made.again()
    again.scheduler.advance(60)
    assert (again.delivered(), again.pending) == (others, 0)


def test_cancelled_timer_that_came_due_meanwhile_waits_for_no_entry_of_its_cancel() -> None:
    """Nothing is entered in the wheel while that stage is paused: what was answered `cancelled` is not delivered."""
    made = timer_tools.broker()
    name = made.later(b"no")
    slow(made)
    steps, awaited = begun(made, name)
    made.timers.stages.pause(TimerPipelineStage.ENQUEUE_PUT)
    made.scheduler.advance(SYNC_SECONDS + 0.5)
    assert awaited.is_reported
    assert drive(steps, made.scheduler) is CANCELLED
    made.scheduler.advance(60)
    assert made.delivered() == []
    made.timers.stages.resume(TimerPipelineStage.ENQUEUE_PUT)
    made.scheduler.advance(60)
    assert (made.delivered(), made.pending) == ([], 0)


def test_cancel_of_a_refused_timer_that_is_put_again_for_later_waits_for_that() -> None:
    """Too many are refused already: it comes due, and is on its way to a later moment. It can still be cancelled."""
    made = timer_tools.broker()
    made.store.create_topic("gone", 1)
    name = made.later(b"no", topic="gone")
    made.store.topic_changes.delete("gone")
    made.timers.due.refused_max = 0
    behind(made)
    slow(made).scheduler.run_until_idle()
    steps = made.timers.cancelling("gone", name)
    assert next(steps) is None
    made.scheduler.advance(1.0)
    assert made.timers.due.landing == 1
    assert drive(steps, made.scheduler) is CANCELLED
    made.store.create_topic("gone", 1)
    made.scheduler.advance(3600)
    topic = made.store.topics["gone"].queues[0]
    assert (made.pending, made.metrics.value(timer_tools.counted.DEFERRED)) == (0, 1)
    assert topic.max_offset == topic.base_offset


@KINDS
def test_cancel_that_is_not_durable_is_not_saved_as_done(tools: Any) -> None:
    """Positions, wheel and timer log do not know of it: a power loss takes it, and the message comes."""
    made = tools.broker()
    name = made.later(b"no")
    slow(made)
    _, awaited = begun(made, name)
    made.scheduler.advance(1.5)
    made.delivery.save()
    assert not awaited.is_reported
    made.leave()
    made.disk.crash(Random(1), modes=("none",))
    again = made.opened_again()
    again.scheduler.advance(60)
    assert (again.delivered(), again.pending) == ([b"no"], 0)


@KINDS
def test_two_cancels_of_one_message_agree(tools: Any) -> None:
    """The second one waits for the first, and is told the same."""
    made = tools.broker()
    name = made.later(b"no")
    slow(made)
    first, _ = begun(made, name)
    second, _ = begun(made, name)
    assert drive(second, made.scheduler) is CANCELLED
    assert drive(first, made.scheduler) is CANCELLED
    made.scheduler.advance(60)
    assert (made.delivered(), made.pending) == ([], 0)


@KINDS
def test_two_cancels_that_meet_store_one(tools: Any) -> None:
    """The second one was looking when the first one's record was staged: it waits for that, and stores none."""
    seen = 0
    while True:
        # Wherever the second one is in its look, the first one comes in between.
        made = tools.broker()
        name = made.later(b"no")
        behind(made)
        slow(made).scheduler.run_until_idle()
        second = made.delivery.cancelling(TOPIC, name)
        if any(next(second) is not None for _ in range(seen)):
            # It has stored its own by then.
            break
        first, _ = begun(made, name)
        assert drive(second, made.scheduler) is CANCELLED
        assert drive(first, made.scheduler) is CANCELLED
        assert made.metrics.value(tools.counted.CANCELLED) == 1
        made.scheduler.advance(60)
        assert (made.delivered(), made.pending) == ([], 0)
        seen += 1
    # Before its first step there is nothing that it could have looked at.
    assert seen > 1


@KINDS
def test_cancel_that_ends_while_another_looks_is_found(tools: Any) -> None:
    """The second one has asked the index by then, and is told what holds."""
    seen = 0
    while True:
        # Wherever the second one is in its steps, the first one comes in between.
        made = tools.broker()
        name = made.later(b"no")
        behind(made)
        made.scheduler.run_until_idle()
        second = made.delivery.cancelling(TOPIC, name)
        if any(isinstance(step(second), StepsEnd) for _ in range(seen)):
            break
        assert made.delivery.cancel(TOPIC, name) is CANCELLED
        assert drive(second, made.scheduler) is CANCELLED
        seen += 1
    assert seen


@KINDS
@pytest.mark.parametrize("fails", [False, True])
def test_cancel_of_what_is_being_delivered_waits_for_that(tools: Any, *, fails: bool) -> None:
    """Too late once the delivery is durable; no answer at all when it fails, since a restart delivers or cancels it."""
    made = tools.broker()
    name = made.later(b"yes")
    slow(made).scheduler.advance(1.5)
    assert made.store.unsettled
    steps, awaited = begun(made, name)
    assert not awaited.is_reported
    if fails:
        made.disk.fail("sync", path_part="commitlog")
        with pytest.raises(StoreFailed):
            drive(steps, made.scheduler)
    else:
        assert drive(steps, made.scheduler) is TOO_LATE
    assert made.delivered() == ([] if fails else [b"yes"])


@KINDS
def test_no_look_waits_for_the_disk(tools: Any) -> None:
    """Whatever is on its way whenever it looks, also when its message was that with the first look."""
    made = tools.broker()
    for place in range(80):
        # From 10 s on one is due every quarter of a second, so that some are being delivered whenever it looks.
        for seconds in (10, 30):
            made.later(b"%d" % place, seconds)
        made.scheduler.advance(0.25)
    name = made.later(b"mine")
    slow(made).scheduler.advance(1.05)
    under_way = 0
    steps = made.delivery.cancelling(TOPIC, name)
    while True:
        made.disk.fail("sync", path_part="commitlog")
        try:
            done = step(steps)
        finally:
            made.disk.heal()
        if isinstance(done, StepsEnd):
            break
        if done is not None:
            under_way += made.store.unsettled
            reported: list[bool] = []
            done.then(partial(reported.append, True))
            let_pass(made.scheduler, partial(bool, reported))
        made.scheduler.run_until_idle()
    assert made.store.failed is None
    assert done.result is TOO_LATE
    assert under_way
    made.scheduler.advance(60)
    assert (b"mine" in made.delivered(), made.pending) == (True, 0)


@KINDS
def test_cancel_of_what_is_tried_again_waits_for_that(tools: Any) -> None:
    """A message that was refused, and whose next attempt is on its way: too late, once that is durable."""
    made = tools.broker()
    made.store.create_topic("gone", 1)
    name = made.later(b"stuck", topic="gone")
    made.store.topic_changes.delete("gone")
    made.scheduler.advance(5)
    made.store.create_topic("gone", 1)
    slow(made).scheduler.advance(6.5)
    assert made.store.unsettled
    steps = made.delivery.cancelling("gone", name)
    assert drive(steps, made.scheduler) is TOO_LATE
    made.scheduler.advance(60)
    assert (made.delivered("gone"), made.pending) == ([b"stuck"], 0)


@KINDS
def test_whoever_cannot_wait_has_it_at_once(tools: Any) -> None:
    """`cancel` of a store that syncs in the background: durable when it returns."""
    made = tools.broker()
    name = made.later(b"no")
    assert slow(made).delivery.cancel(TOPIC, name) is CANCELLED
    made.leave()
    made.disk.crash(Random(1), modes=("none",))
    again = made.opened_again()
    again.scheduler.advance(60)
    assert (again.delivered(), again.pending) == ([], 0)


def test_timer_that_is_being_moved_comes_at_the_new_moment_alone() -> None:
    """Also when the old one passes while the move is stored."""
    made = timer_tools.broker()
    name = made.later(b"m")
    steps = slow(made).timers.rescheduling(TOPIC, name, made.clock.wall_ms() + 10_000)
    outcome, _ = drive(steps, made.scheduler)
    made.scheduler.advance(60)
    assert (outcome, made.delivered(), made.times(), made.pending) == (CANCELLED, [b"m"], [10_000], 0)


@pytest.mark.parametrize("seconds", [0.5, 1.5, 2.5, 3.5, 5.5])
def test_cancel_of_a_loop_ends_it_wherever_it_stands(seconds: float) -> None:
    """Between two occurrences, and with one of them and the next on their way to the disk."""
    made = loop_tools.world()
    first = loop_tools.loop(1, every=1, times=100)
    made.add(first)
    syncs = SimSyncs(made.disk, made.scheduler, Even(), seconds_max=2 * SYNC_SECONDS)
    flush_in_background(made.store, syncs, made.scheduler)
    made.scheduler.advance(seconds)
    assert drive(cancelling_delay(made.timers, TOPIC, first), made.scheduler) is CANCELLED
    found = made.ids()
    made.scheduler.advance(60)
    assert (made.ids(), made.timers.pending) == (found, 0)
    assert drive(cancelling_delay(made.timers, TOPIC, first), made.scheduler) is CANCELLED


@KINDS
@pytest.mark.parametrize("cancelled", [False, True])
def test_retention_does_not_move_what_is_on_its_way(tools: Any, *, cancelled: bool) -> None:
    """A refused message whose retry, or cancel, is not durable: put again, it would come twice, or after all."""
    made = tools.broker()
    made.store.create_topic("gone", 1)
    name = made.later(b"stuck", topic="gone")
    made.store.topic_changes.delete("gone")
    made.scheduler.advance(5)
    for _ in range(8):
        made.store.put(TOPIC, b"y" * 1500)
    made.clock.advance(11)
    made.store.checkpoint()
    hold = TimerHold if tools is timer_tools else DelayHold
    made.store.retention.holds.append(hold(made.delivery, made.metrics))
    made.store.retention.limits = RetentionLimits(log_bytes=2 * 4096)
    slow(made)
    if cancelled:
        steps = made.delivery.cancelling("gone", name)
        while next(steps) is None:
            pass
    made.store.create_topic("gone", 1)
    made.scheduler.advance(1)
    assert made.store.unsettled
    made.store.retention.step()
    made.scheduler.advance(60)
    for _ in range(20):
        made.store.retention.step()
        made.scheduler.advance(5)
    assert (made.delivered("gone"), made.pending) == ([] if cancelled else [b"stuck"], 0)
