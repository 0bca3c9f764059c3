"""Loops whose pending occurrence RocketMQ delivered, which ends them there, go on here after the way back."""

from __future__ import annotations

import contextlib
from random import Random

import pytest

from broker.errors import StoreError
from broker.format.message import message_of
from broker.format.properties import encode_properties, find_property
from broker.format.record import split
from broker.log.decisions import prepared_offset_of
from broker.log.put import Put
from broker.scheduled.cancelling import CancelEffect
from broker.scheduled.recurring.occurrence import Occurrence
from broker.scheduled.timer.names import TIMER_TOPIC
from pyddmq.testing import PowerCut
from tests.integration.loop_tools import START_S, TOPIC, World, loop, world
from tests.integration.store_tools import HOST, open_store

NOTE = "/store/pyddmq/loops.json"


def delivered_there(made: World, **changed: str) -> World:
    """Stop; write what RocketMQ does when it delivers the pending occurrence; open again.

    Its timer is settled as RocketMQ's own checkpoint would have it, here by the record that takes its place.
    """
    made.close()
    store = open_store(made.disk, clock=made.clock, segment_bytes=16384)
    timers = store.topics[TIMER_TOPIC].queues[0]
    [(physical, size, _)] = timers.read(timers.max_offset - 1, 1)
    body, block = split(store.read(physical, size))
    message = message_of(store.read(physical, size))
    wanted = {**message.properties, **changed, "TIMER_DEQUEUE_MS": "1"}
    key, properties = wanted["UNIQ_KEY"], encode_properties(wanted)
    assert find_property(bytes(block), b"REAL_TOPIC") == TOPIC.encode()
    put = Put(
        store.topics[TOPIC],
        0,
        bytes(body),
        properties,
        unique_key=key.encode(),
        prepared_offset=prepared_offset_of(physical),
    )
    store.append([put], born_ms=made.clock.wall_ms(), born_host=HOST)
    store.flush()
    store.abandon()
    made.disk.kill()
    return made


def back(made: World, **options: int) -> World:
    """Open what is left."""
    return world(made.disk, made.clock, **options)


def ids(first: Occurrence, *numbers: int) -> list[str]:
    """Ids of some of a loop's occurrences."""
    return [each.id for number in numbers if (each := first.later(number)) is not None]


def test_loop_goes_on_with_what_was_missed() -> None:
    """Each occurrence once, in order, to the loop's end; what RocketMQ delivered has the key that it waited under."""
    made = world()
    first = loop(at=60, every=60, times=6)
    made.add(first, b"ping")
    made.scheduler.advance(61)
    delivered_there(made)
    made.clock.advance(130)
    made = back(made)
    assert [each.split()[0] for each in made.ids()] == ids(first, 0, 1, 2)
    made.scheduler.advance(600)
    assert [each.split()[0] for each in made.ids()] == ids(first, 0, 1, 2, 3, 4, 5)
    assert not made.disk.exists(NOTE)
    made = made.again()
    made.scheduler.advance(600)
    assert len(made.ids()) == 6


@pytest.mark.parametrize("whole_log", [False, True])
def test_loop_goes_on_once(whole_log: bool) -> None:
    """However often the log is scanned; a cancel ends it for good."""
    made = world()
    first = loop(at=60, every=60, times=100)
    made.add(first)
    delivered_there(made)
    for _ in range(3):
        if whole_log:
            made.disk.remove("/store/pyddmq/checkpoint.json")
        made = back(made)
        made.stop()
        made.disk.kill()
    made = back(made)
    made.scheduler.advance(121)
    assert [each.split()[0] for each in made.ids()] == ids(first, 0, 1)
    assert made.cancel(first) is CancelEffect.CANCELLED
    made.disk.remove("/store/pyddmq/checkpoint.json")
    made = made.again()
    made.scheduler.advance(600)
    assert len(made.ids()) == 2


@pytest.mark.parametrize("stop", range(0, 60, 3))
def test_stop_anywhere_neither_ends_nor_doubles_it(stop: int) -> None:
    """The note is durable before the checkpoint passes the record over, and goes when the loop waits."""
    made = world()
    first = loop(at=60, every=60, times=100)
    made.add(first)
    delivered_there(made)
    made.disk.stop_after(stop)
    with contextlib.suppress(PowerCut):
        back(made).stop()
    made.disk.kill()
    made = back(made)
    made.scheduler.advance(121)
    assert [each.split()[0] for each in made.ids()] == ids(first, 0, 1)


@pytest.mark.parametrize("operation", ["write", "sync"])
@pytest.mark.parametrize("skip", range(4))
def test_note_stays_where_the_log_cannot_be_written(operation: str, skip: int) -> None:
    """The next occurrence is not stored then, and the next start puts it."""
    made = world()
    first = loop(at=60, every=60, times=100)
    made.add(first)
    delivered_there(made)
    made.disk.fail(operation, path_part="/commitlog/", skip=skip)
    with contextlib.suppress(StoreError):
        back(made).stop()
    made.disk.crash(Random(1), modes=("none",))
    made = back(made)
    made.scheduler.advance(121)
    assert [each.split()[0] for each in made.ids()] == ids(first, 0, 1)


def test_last_occurrence_ends_it_there() -> None:
    """There is none to go on with."""
    made = world()
    made.add(loop(at=60, every=60, times=1))
    delivered_there(made)
    made = back(made)
    made.scheduler.advance(600)
    assert len(made.ids()) == 1
    assert not made.disk.exists(NOTE)


@pytest.mark.parametrize(
    "changed", [{"UNIQ_KEY": "0" * 32}, {"__PYDDMQ_LOOP": "x"}, {"__PYDDMQ_LOOP": loop(number=3).id}], ids=str
)
def test_message_that_only_says_so_starts_no_loop(changed: dict[str, str]) -> None:
    """A client of RocketMQ's may write any property; only what waited in the timer topic belongs to a loop."""
    made = world()
    made.add(loop(at=60, every=60, times=100))
    delivered_there(made, **changed)
    made = back(made)
    made.scheduler.advance(3600)
    assert len(made.ids()) == 1
    assert made.clock.wall_ms() > START_S
