"""Delays over every stop: killed or cut from power at any change of the disk, nothing is lost, early or twice."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.integration.delay_tools import Broker, broker
from tests.integration.waiting_tools import Stops, WaitingStore, lose, stop_at_every_change

FILES = ("config/delayOffset.json", "config/delayOffset.json.bak", "pyddmq/delays.json", "pyddmq/delayOffset.json")
"""What tells how far delivery is; the log can do without."""


class DelayStops(Stops):
    """Of a store with delay levels."""

    def opened(self) -> Broker:
        """Open what is there."""
        return broker(self.disk, self.clock, segment_bytes=16384)

    def send(self, made: WaitingStore, body: bytes, random: Random) -> int:
        """Publish with one of three levels."""
        level = random.choice((1, 1, 2, 3))
        made.store.put("t", body, delay_level=level)
        return self.clock.wall_ms() + (1000, 5000, 10_000)[level - 1]

    def pause(self, random: Random) -> float:
        """Some of the delays are over then."""
        return random.choice((0.3, 1.0, 6.0))

    def check(self) -> None:
        """Twenty seconds later all is delivered."""
        made = self.opened()
        made.check(self.sent, seconds=20)
        made.close()


class BesideStops(DelayStops):
    """Of one whose levels are saved beside the loop."""

    def opened(self) -> Broker:
        """Open what is there."""
        return super().opened().save_beside()


@pytest.mark.parametrize("seed", range(3))
def test_stop_at_every_change_of_a_save_beside_the_loop(seed: int) -> None:
    """Messages come and fall due between its steps; files that go besides."""
    stop_at_every_change(
        BesideStops,
        seed=seed,
        step=5,
        after=lambda made, changes: lose(made.disk, FILES, (1 << changes % (len(FILES) + 1)) - 1),
    )


@pytest.mark.parametrize("seed", range(4))
def test_stop_at_every_change_loses_repeats_and_hurries_nothing(seed: int) -> None:
    """A kill or a power cut at each change of the disk around put, delivery and checkpoint; files that go besides."""
    stop_at_every_change(
        DelayStops,
        seed=seed,
        step=3,
        after=lambda made, changes: lose(made.disk, FILES, (1 << changes % (len(FILES) + 1)) - 1),
    )


@settings(max_examples=30, deadline=None)
@given(st.lists(st.integers(1, 400), min_size=2, max_size=4), st.integers(0, 1 << 30), st.integers(0, 31))
def test_stops_in_a_row(stops: list[int], seed: int, lost: int) -> None:
    """One stop after the other, each anywhere, some of the files gone after the last."""
    made = DelayStops()
    made.in_a_row(stops, Random(seed))
    lose(made.disk, (*FILES, "pyddmq/checkpoint.json"), lost)
    made.check()
    assert len(made.opened().delivered()) >= len(made.sent)
