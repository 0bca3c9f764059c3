"""Timers against a plain model: log, wheel and table made again from any prefix, whatever was synced.

The model is a dictionary of what is pending and when it is due. Invariants: what is pending after a start is that, told
timer by timer; it is delivered once each, at its very millisecond or, if that is over, at once; nothing that was
cancelled is.
"""

from __future__ import annotations

import contextlib
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from broker.scheduled.cancelling import CancelEffect
from broker.scheduled.timer.listing import TimerListing
from broker.scheduled.timer.pending.log import UNIT_BYTES
from pyddmq.testing import PowerCut, SimDisk
from tests.integration.store_tools import ROOT
from tests.integration.timer_tools import SMALL, START_MS, TOPIC, Broker, broker

PER_FILE = (SMALL.log_file_bytes - 16) // UNIT_BYTES
DELAYS_MS = (400, 1_000, 4_300, 9_999, 30_000, 119_000, 121_000, 170_000, 400_000)
"""Within a second to beyond the window of rolls."""

Model = dict[str, tuple[bytes, int]]
"""Body and due time by id."""


def change(made: Broker, model: Model, what: str, draw: int) -> None:
    """Do one thing to the timers, and to the model."""
    if what == "send":
        body = b"%d" % made.disk.operations
        due_ms = made.clock.wall_ms() + DELAYS_MS[draw % len(DELAYS_MS)]
        model[made.send(body, due_ms - made.clock.wall_ms())] = (body, due_ms)
    elif what == "advance":
        made.scheduler.advance((0.2, 1.1, 7.0, 130.0)[draw % 4])
        for name in [name for name, (_, due_ms) in model.items() if due_ms <= made.clock.wall_ms()]:
            del model[name]
    elif what == "save":
        made.timers.save()
    elif model:
        name = sorted(model)[draw % len(model)]
        body, _ = model.pop(name)
        if what == "cancel":
            assert made.timers.cancel(TOPIC, name) is CancelEffect.CANCELLED
        else:
            due_ms = made.clock.wall_ms() + DELAYS_MS[draw % len(DELAYS_MS)]
            moved = made.timers.reschedule(TOPIC, name, due_ms)
            assert moved.outcome is CancelEffect.CANCELLED
            model[moved.unique_key] = (body, due_ms)


def listed(made: Broker) -> dict[str, int]:
    """Ids and due times of what the timers say is pending, timer by timer."""
    listing = TimerListing(made.timers, limit=1000)
    for _ in listing.steps():
        pass
    return {each.id: each.due_ms for each in listing.found}


def cut_log(disk: SimDisk, units: int) -> None:
    """Leave a prefix of the timer log, of so many units; the rest is zeros, as in files of which it was not synced."""
    for name in disk.list(f"{ROOT}/timerlog"):
        keep = max(0, min(PER_FILE, units - int(name) // SMALL.log_file_bytes * PER_FILE)) * UNIT_BYTES
        if keep < PER_FILE * UNIT_BYTES:
            disk.open(f"{ROOT}/timerlog/{name}").write(keep, [bytes(SMALL.log_file_bytes - keep)])


CHANGES = some.lists(
    some.tuples(
        some.sampled_from(["send"] * 4 + ["advance"] * 2 + ["cancel", "move", "save"]), some.integers(0, 1 << 10)
    ),
    min_size=1,
    max_size=60,
)


@settings(max_examples=40)
@given(CHANGES, some.integers(0, 1 << 10), some.booleans(), some.sampled_from([0.0, 0.0, 3.0, 300.0]))
def test_any_prefix_of_the_timer_log_gives_all_that_is_pending(
    changes: list[tuple[str, int]], cut: int, no_wheel: bool, down_seconds: float
) -> None:
    """Behind or before the checkpoint, over files' borders, without the wheel, after a time without a process."""
    made, model = broker(segment_bytes=1 << 18), Model()
    for what, draw in changes:
        change(made, model, what, draw)
    delivered = made.delivered()
    units = cut % (made.timers.table.log.count + 1)
    saved = made.timers.checkpoints.saved
    kept = saved is None or made.timers.table.log.number(saved.log_end) <= units
    made.timers.stop()
    made.store.abandon()
    made.disk.kill()
    cut_log(made.disk, units)
    if no_wheel and made.disk.exists(f"{ROOT}/timerwheel"):
        made.disk.remove(f"{ROOT}/timerwheel")
    made.clock.advance(down_seconds)
    began_ms = made.clock.wall_ms()
    made = broker(made.disk, made.clock, start=False, segment_bytes=1 << 18)
    if kept or no_wheel:
        found = listed(made)
        assert found.items() <= {name: due_ms for name, (_, due_ms) in model.items()}.items()
        # What belongs to a slot that is over is entered with the first step.
        assert len(found) == made.timers.pending >= len(model) - made.timers.entering.lag
    made.timers.start()
    made.scheduler.advance(500)
    came, times = made.delivered(), made.times()
    assert came[: len(delivered)] == delivered
    wanted = sorted((max(due_ms, began_ms), body) for body, due_ms in model.values())
    assert sorted((at + START_MS, body) for at, body in zip(times, came, strict=True))[len(delivered) :] == wanted
    assert made.pending == 0


@pytest.mark.parametrize("how", ["kill", "sync", "write"])
def test_what_a_stop_left_in_the_page_cache_survives_a_power_loss(how: str) -> None:
    """The next process takes units, slots and marks over as it reads them; the disk may not have them.

    The first process ends at each change of a checkpoint, or by an error, after which a sync writes nothing.
    """
    for number in range(60):
        made = broker()
        timer, moved = made.send(b"cancelled", 50_000), made.send(b"moved", 55_000)
        made.send(b"far", 200_000)
        made.scheduler.advance(1)
        made.timers.save()
        for body in (b"0", b"1", b"2"):
            made.send(body, 60_000 + int(body) * 1000)
        late = made.send(b"cancelled", 70_000)
        made.scheduler.advance(1)
        for each in (timer, late):
            assert made.timers.cancel(TOPIC, each) is CancelEffect.CANCELLED
        made.timers.reschedule(TOPIC, moved, made.clock.wall_ms() + 40_000)
        made.scheduler.advance(1)
        if how == "kill":
            made.disk.stop_after(number // 5)
        else:
            made.disk.fail(how, path_part="timer", skip=number // 5)
        with contextlib.suppress(PowerCut):
            made.timers.save()
        made.timers.stop()
        made.disk.kill()
        made = broker(made.disk, made.clock)
        made.timers.save()
        made = made.again(stop=lambda disk: disk.crash(Random(number)))  # noqa: B023 - it is called at once
        made.scheduler.advance(300)
        assert sorted(made.delivered()) == [b"0", b"1", b"2", b"far", b"moved"], number
        assert made.timers.pending == 0


def test_unit_of_which_a_failed_sync_wrote_half_is_written_anew() -> None:
    """The next process reads it whole, and without that a power loss leaves a unit that needs nothing."""
    made = broker()
    for _ in range(19):
        made.send(b"far", 200_000)
    made.scheduler.advance(1)
    made.timers.save()
    # The twentieth has its size behind the end of a sector.
    made.send(b"near", 60_000)
    made.scheduler.advance(1)
    made.disk.fail("sync", path_part="timerlog")
    made.timers.save()
    assert made.store.failed is not None
    node = made.disk._files[f"{ROOT}/timerlog/{0:020d}"]
    node.durable[:1024] = node.content[:1024]
    made = made.again()
    made.timers.save()
    made = made.again(stop=lambda disk: disk.crash(Random(1)))
    made.scheduler.advance(100)
    assert made.delivered() == [b"near"]
