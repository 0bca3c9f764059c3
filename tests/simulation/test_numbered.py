"""The simulated producer that numbers: which gaps it takes for a broken promise, and which for a long silence."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.insides import opened_of
from tests.simulation.clients import ProducerHabits
from tests.simulation.facts import PromiseBroken
from tests.simulation.numbered import NumberedProducer, Silence, add_numbered
from tests.simulation.waits import Walls
from tests.simulation.world import World

MINUTE_MS = 60_000


class Clocks:
    """A wall clock that is stepped, and what a producer did by it."""

    def __init__(self) -> None:
        self.time = 100.0
        self.offset_ms = 0
        self.walls = Walls(self._wall_ms, lambda: self.time)
        self.silence = Silence(self.walls)

    def _wall_ms(self) -> int:
        return round(self.time * 1000) + self.offset_ms

    def step(self, minutes: float) -> None:
        """Step it, a second before and a second after anything else."""
        self.time += 1.0
        before = self._wall_ms()
        self.offset_ms += round(minutes * MINUTE_MS)
        self.walls.stepped(before, self._wall_ms())
        self.time += 1.0

    def send(self, *, step: float = 0.0) -> None:
        """Send a message that is stored; the clock is stepped while it is under way."""
        sent = self.time
        if step:
            self.step(step)
        self.silence.ended(sent, self.time)

    def excused(self) -> bool:
        """Whether a gap now may be one of a forgotten producer."""
        return self.silence.is_too_long(self.time)


def set_ahead(clocks: Clocks) -> None:
    """By more than the window."""
    clocks.send()
    clocks.step(10.1)


def set_ahead_twice(clocks: Clocks) -> None:
    """Together by more than the window."""
    clocks.send()
    clocks.step(6)
    clocks.step(6)


def set_ahead_and_back(clocks: Clocks) -> None:
    """What others stored between keeps its timestamps."""
    clocks.send()
    clocks.step(11)
    clocks.step(-30)


def set_ahead_under_way(clocks: Clocks) -> None:
    """The message may have been stored before."""
    clocks.send(step=11)


def nothing_stored(clocks: Clocks) -> None:
    """A name is not forgotten before it is known."""
    clocks.step(60)


def set_ahead_by_less(clocks: Clocks) -> None:
    """By less than the window."""
    clocks.send()
    clocks.step(9.9)


def set_ahead_before(clocks: Clocks) -> None:
    """The producer sent after it."""
    clocks.send()
    clocks.step(60)
    clocks.send()


def set_back(clocks: Clocks) -> None:
    """Timestamps stay, so that nobody is silent."""
    clocks.send()
    clocks.step(-60)


def set_back_and_right(clocks: Clocks) -> None:
    """A message after the step back has the timestamp of the one before it."""
    clocks.send()
    clocks.step(-60)
    clocks.send()
    clocks.step(60)


@pytest.mark.parametrize("history", [set_ahead, set_ahead_twice, set_ahead_and_back, set_ahead_under_way])
def test_clock_set_ahead_excuses_a_gap(history: Callable[[Clocks], None]) -> None:
    """A producer may be forgotten when store timestamps can have gone on by more than the window since its last one."""
    clocks = Clocks()
    history(clocks)
    assert clocks.excused()


@pytest.mark.parametrize("history", [nothing_stored, set_ahead_by_less, set_ahead_before, set_back, set_back_and_right])
def test_other_histories_of_the_clock_excuse_no_gap(history: Callable[[Clocks], None]) -> None:
    """A producer is known as long as store timestamps cannot have gone on by so much."""
    clocks = Clocks()
    history(clocks)
    assert not clocks.excused()


def test_steady_clock_excuses_no_gap() -> None:
    """Where no clock is stepped, no gap is one of a forgotten producer."""
    silence = Silence(None)
    silence.ended(1.0, 2.0)
    assert not silence.is_too_long(10_000.0)


def make_world() -> World:
    """Return a world with a numbered producer, whose pauses are so long that it is forgotten in one, and another."""
    world = World(3)
    world.start()
    add_numbered(world, ProducerHabits(pause_seconds=3.0, refused_share=0.0), compact=False, number=1)
    world.add_producer(number=2)
    world.run(seconds=10)
    assert not world.report.events["sent_under_new_name"]
    return world


def test_clock_that_is_set_ahead_silences_nobody_while_the_node_lives() -> None:
    """By more than the window: the producer is known as before, though others stored by that clock before it sent."""
    world = make_world()
    world.step_clock(11 * MINUTE_MS)
    world.run(seconds=20)
    assert world.node is not None
    assert world.node.runtime.metrics.value("pyddmq_producers_forgotten_total", "silent") == 0
    assert world.report.events["sent_under_new_name"] == 0
    assert world.report.events["publish_code_0"]


def test_producer_that_is_told_a_gap_after_a_long_silence_goes_on_under_a_new_name() -> None:
    """A start without a checkpoint may forget everybody after such a step: a gap, and nothing is lost."""
    world = make_world()
    world.step_clock(11 * MINUTE_MS)
    assert world.node is not None
    opened_of(world.node).deduplication.window.clear()
    world.run(seconds=20)
    assert world.report.events["sent_under_new_name"] == 1
    assert world.report.events["publish_code_0"]


def test_second_attempt_that_is_answered_too_counts_once() -> None:
    """Both attempts of one message arrive: the second is answered as its repeat, and the next has the next number."""
    world = make_world()
    producer = world.clients[0]
    assert isinstance(producer, NumberedProducer)
    while producer.on_its_way is None:
        world.run(seconds=0.001)
    number, count = producer.sequence, len(producer.on_its_way[1])
    producer.send_again()
    world.run(seconds=1)
    assert producer.sequence == number + count
    assert world.report.events["repeat_answered"] == 1
    world.run(seconds=10)
    assert world.report.events["sent_under_new_name"] == 0


@pytest.mark.parametrize("step_ms", [0, 9 * MINUTE_MS, -60 * MINUTE_MS])
def test_node_that_forgets_a_producer_early_breaks_its_promise(step_ms: int) -> None:
    """A gap is one only for whoever was silent for too long; a step of the clock by less is no excuse for it."""
    world = make_world()
    world.step_clock(step_ms)
    assert world.node is not None
    opened_of(world.node).deduplication.window.clear()
    with pytest.raises(PromiseBroken, match="came in order and was answered as behind a gap"):
        world.run(seconds=20)
