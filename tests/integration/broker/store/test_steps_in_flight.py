"""Steps of deliveries that are taken while the disk has the ones before: how many, each message once, nothing lost."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest

from broker.log.put import Put
from broker.runtime.step_size import STEPS_MAX
from broker.scheduled.delay.puts import DelayedPuts
from broker.scheduled.timer.puts import TimedPuts
from pyddmq.testing import SimDisk
from tests.integration import delay_tools, timer_tools
from tests.integration.waiting_tools import TOPIC, WaitingStore

COUNT = 6_000


class Slow(Random):
    """Has every sync take as long."""

    def random(self) -> float:
        """Always the same."""
        return 0.75


def _delays() -> WaitingStore:
    made = delay_tools.broker(segment_bytes=1 << 20)
    _append(made, lambda put: made.store.waiting(DelayedPuts).put(put, 3))
    return made


def _timers() -> WaitingStore:
    made = timer_tools.broker(segment_bytes=1 << 20)
    due_ms = made.clock.wall_ms() + 10_000
    _append(made, lambda put: made.store.waiting(TimedPuts).put(put, due_ms))
    return made


def _append(made: WaitingStore, waiting: Callable[[Put], Put]) -> None:
    topic = made.store.topics[TOPIC]
    puts = [waiting(Put(topic, 0, b"%d" % number, b"")) for number in range(COUNT)]
    made.store.append(puts, born_ms=1, born_host=bytes(8))
    made.store.flush()
    made.scheduler.advance(9.9)
    assert made.delivered() == []


def _steps(made: WaitingStore) -> int:
    return made.delivery.due.delivery.steps


def _in_flight(made: WaitingStore) -> int:
    return made.delivery.due.delivery.in_flight


KINDS = pytest.mark.parametrize("make", [_delays, _timers], ids=["delays", "timers"])


@KINDS
def test_burst_goes_on_while_the_disk_works(make: Callable[[], WaitingStore]) -> None:
    """So many steps and no more are made meanwhile; all come once, in their order, and no step is left."""
    made = make()
    made.flush_in_background(Slow(1), seconds_max=0.1)
    seen = set()
    for _ in range(600):
        made.scheduler.advance(0.01)
        seen.add(_steps(made))
    assert max(seen) == STEPS_MAX
    assert made.delivered() == [b"%d" % number for number in range(COUNT)]
    assert (_steps(made), _in_flight(made), made.delivery.store.unsettled) == (0, 0, False)


@KINDS
@pytest.mark.parametrize("power", [False, True])
def test_stop_with_steps_in_flight_loses_and_repeats_nothing(make: Callable[[], WaitingStore], *, power: bool) -> None:
    """At some moments of the burst."""
    for moment in range(3):
        made = make()
        made.flush_in_background(Slow(moment), seconds_max=0.1)
        made.scheduler.advance(0.15 + 0.06 * moment)
        assert _steps(made) > 1

        def stop(disk: SimDisk, moment: int = moment) -> None:
            if power:
                disk.crash(Random(moment))
            else:
                disk.kill()

        made = made.again(stop=stop, segment_bytes=1 << 20)
        made.scheduler.advance(20)
        assert sorted(made.delivered(), key=int) == [b"%d" % number for number in range(COUNT)]


@KINDS
def test_failed_sync_ends_all_steps(make: Callable[[], WaitingStore]) -> None:
    """What was in flight is neither shown nor settled; a start delivers it."""
    made = make()
    made.flush_in_background(Slow(1), seconds_max=0.1)
    made.disk.fail("sync", path_part="commitlog", skip=2)
    made.scheduler.advance(20)
    assert made.store.failed is not None
    assert (_steps(made), _in_flight(made)) == (0, 0)
    assert 0 < len(made.delivered()) < COUNT
    made = made.again(segment_bytes=1 << 20)
    made.scheduler.advance(20)
    assert sorted(made.delivered(), key=int) == [b"%d" % number for number in range(COUNT)]


@pytest.mark.parametrize("kind", ["delays", "timers"])
def test_refused_message_is_not_tried_again_while_it_is_on_its_way(kind: str) -> None:
    """On a disk whose syncs take longer than it is until the next try."""
    made: WaitingStore
    if kind == "delays":
        made = broker = delay_tools.broker()
        made.store.create_topic("gone", 1)
        broker.send(b"x", 1, "gone")
    else:
        made = timed = timer_tools.broker()
        made.store.create_topic("gone", 1)
        timed.send(b"x", 1_000, "gone")
    made.store.topic_changes.delete("gone")
    made.scheduler.advance(2)
    made.store.create_topic("gone", 1)
    made.flush_in_background(Slow(1), seconds_max=40.0)
    made.scheduler.advance(12)
    assert (_in_flight(made), made.delivered("gone")) == (1, [])
    made.scheduler.advance(200)
    assert (_in_flight(made), made.delivered("gone")) == (0, [b"x"])
