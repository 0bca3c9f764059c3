"""A wall clock that was wrong for a while and is corrected: nothing comes early, nothing late by that, and all ages."""

from __future__ import annotations

import pytest

from broker.retention import RetentionLimits
from tests.integration import delay_tools
from tests.integration.timer_tools import TOPIC, Broker, broker
from upstream.embedded.message_times import MessageTimes

HOUR_MS = 3_600_000
YEAR_MS = 365 * 24 * HOUR_MS


def glitch(made: Broker, by_ms: int, seconds: float = 3.0) -> None:
    """Set the wall clock wrong for some seconds, and correct it."""
    made.clock.set_wall_ms(made.clock.wall_ms() + by_ms)
    made.scheduler.advance(seconds)
    made.clock.set_wall_ms(made.clock.wall_ms() - by_ms)


def again(made: Broker, stop: str) -> Broker:
    """Stop and start: in an orderly way, by a kill that the checkpoint precedes, or by one long before the next."""
    if stop == "clean":
        made.close()
        return made.opened_again()
    if stop == "saved":
        made.timers.save()
    return made.again()


@pytest.mark.parametrize("stop", ["clean", "saved", "killed"])
@pytest.mark.parametrize("pending", [True, False])
@pytest.mark.parametrize("first", ["nothing", "before", "after"])
def test_timers_are_on_time_after_a_forward_glitch_and_a_restart(first: str, pending: bool, stop: str) -> None:
    """Slots were read up to the glitch: timers that are sent since then stand in a slot that is long to come."""
    made = broker()
    made.send(b"delivered by the glitch", 60_000)
    if pending:
        made.send(b"far", 300_000_000)
    made.scheduler.advance(1)
    if stop == "killed":
        made.timers.save()
        made.timers.checkpoints.end()
    glitch(made, HOUR_MS)
    sent: dict[bytes, int] = {}

    def send(body: bytes, delay_ms: int) -> None:
        sent[body] = made.clock.wall_ms() + delay_ms
        made.send(body, delay_ms)

    send(b"a", 20_000)
    send(b"b", 40_000)
    made.scheduler.advance(2)
    if first == "before":
        send(b"c", 500)
        made.scheduler.advance(1)
    made = again(made, stop)
    if first == "after":
        send(b"c", 500)
        send(b"d", 30_000)
    came: dict[bytes, int] = {}
    for _ in range(600):
        made.scheduler.advance(0.1)
        for body in made.delivered():
            came.setdefault(body, made.clock.wall_ms())
    for body, due_ms in sent.items():
        assert due_ms <= came.get(body, 0) <= due_ms + 1_100, body


@pytest.mark.parametrize("seconds", [0.5, 100.0])
@pytest.mark.parametrize("by_ms", [-2 * HOUR_MS, -HOUR_MS, HOUR_MS, 400 * 24 * HOUR_MS])
def test_levels_are_on_time_after_a_glitch(by_ms: int, seconds: float) -> None:
    """The longest level, sent before the glitch, in it, and after it; one sent before a step forward is due by that."""
    made = delay_tools.broker()
    begun = made.clock.monotonic()

    def send(body: bytes) -> None:
        made.store.put(delay_tools.TOPIC, body, delay_level=18)
        made.scheduler.run_until_idle()

    came: dict[bytes, float] = {}
    send(b"before")
    made.clock.set_wall_ms(made.clock.wall_ms() + by_ms)
    send(b"in it")
    made.scheduler.advance(seconds)
    came.update(dict.fromkeys(made.delivered(), made.clock.monotonic() - begun))
    made.clock.set_wall_ms(made.clock.wall_ms() - by_ms)
    send(b"after")
    for _ in range(730):
        made.scheduler.advance(10)
        for body in made.delivered():
            came.setdefault(body, made.clock.monotonic() - begun)
    wanted = {b"before": 7_200.0, b"in it": 7_200.0, b"after": 7_200.0 + seconds}
    if by_ms < 0:
        # Its moment is an instant of the wall clock, which is there sooner once the clock is set right.
        wanted[b"in it"] -= -by_ms / 1000
    elif by_ms >= 2 * HOUR_MS:
        wanted[b"before"] = seconds
    for body, moment in wanted.items():
        assert max(moment, seconds) - 0.001 <= came[body] <= max(moment, seconds) + seconds + 10, body


@pytest.mark.parametrize("restart", [False, True])
@pytest.mark.parametrize("by_ms", [HOUR_MS, 10 * YEAR_MS])
def test_messages_grow_old_after_a_clock_that_was_ahead(by_ms: int, restart: bool) -> None:
    """Store timestamps stay where the clock has been (D4); age retention and lag seconds do not stand still."""
    made = broker()

    def tick(seconds: int) -> None:
        for _ in range(seconds):
            made.scheduler.advance(1)
            made.store.checkpoint()

    made.clock.set_wall_ms(made.clock.wall_ms() + by_ms)
    made.store.put(TOPIC, b"in the glitch" * 200)
    made.clock.set_wall_ms(made.clock.wall_ms() - by_ms)
    tick(3)
    if restart:
        made.close()
        made = made.opened_again()
    made.store.put(TOPIC, b"after" * 500)
    tick(1)
    made.store.put(TOPIC, b"later" * 500)
    tick(600)
    made.store.put(TOPIC, b"now")
    queue = made.store.topics[TOPIC].queues[0]
    times = MessageTimes(made.store)
    ages = [round((made.clock.wall_ms() - (times.at(queue, offset) or 0)) / 1000) for offset in range(4)]
    # Seen by who looks each second.
    assert ages == [601 if restart else 603, 600, 599, 0]
    # What was read once grows older, too.
    tick(100)
    assert [round((made.clock.wall_ms() - (times.at(queue, offset) or 0)) / 1000) for offset in (0, 3)] == [
        ages[0] + 100,
        99,
    ]
    made.store.retention.limits = RetentionLimits(age_ms=720_000)
    made.store.retention.step()
    assert made.store.min_offset == 0
    left = made.store.retention.left(0, made.clock.wall_ms() + by_ms).seconds
    assert left is not None
    assert round(left) == 720 - ages[0] - 100
    tick(25)
    while made.store.retention.step():
        pass
    assert made.store.min_offset > 0
    assert made.delivered()[-1] == b"now"
