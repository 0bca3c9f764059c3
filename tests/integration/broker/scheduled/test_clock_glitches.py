"""A wall clock that was wrong for a while and is corrected: nothing comes early, and nothing late by that."""

from __future__ import annotations

import pytest

from tests.integration import delay_tools
from tests.integration.timer_tools import Broker, broker

HOUR_MS = 3_600_000


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
