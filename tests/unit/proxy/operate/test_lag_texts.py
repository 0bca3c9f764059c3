"""Lag as people read it."""

from __future__ import annotations

from proxy.operate.lag_texts import behind, forecast, forecast_of_all, sparkline
from tests.lag_answers import lag_queue


def test_what_is_not_known_is_said_so() -> None:
    """Never 0, and an estimate by its method."""
    assert behind(lag_queue(time_lag_ms=None, time_lag_low_ms=None)) == "?"
    bounded = lag_queue(time_lag_ms=None, time_lag_low_ms=61_000, time_lag_method="bounded")
    assert behind(bounded) == "at least 1 min 1 s (bounded)"
    assert behind(lag_queue(time_lag_ms=5_000, time_lag_method="interpolated")) == "about 5.0 s (interpolated)"
    assert forecast(lag_queue(unfinished=3, produce_rate=None, velocity=None)) == ""
    assert forecast(lag_queue(unfinished=3, produce_rate=None, velocity=0.5)) == "grows by 0.5/s"
    assert forecast(lag_queue(unfinished=3, velocity=-1.0, catch_up_s=240.0)) == "caught up in 4 min"


def test_forecast_is_by_the_rates_that_stand_beside_it() -> None:
    """A trend over the window may say otherwise; a group and its only queue have one forecast."""
    slow = lag_queue(unfinished=3, produce_rate=1.2, consume_rate=0.6, velocity=0.276)
    assert forecast(slow) == forecast_of_all([slow]) == "grows by 0.6/s"
    after_reset = lag_queue(unfinished=240, produce_rate=1.0, consume_rate=1.02, velocity=1.95, catch_up_s=240.0)
    assert forecast(after_reset) == forecast_of_all([after_reset]) == "caught up in 4 min"
    other = lag_queue(queue=1, unfinished=9, produce_rate=5.0, consume_rate=1.0)
    assert forecast_of_all([slow, other]) == "grows by 4.6/s"


def test_sparkline_shows_what_is_not_nothing_and_leaves_blank_what_is_not_known() -> None:
    """The highest is the top; a terminal without blocks gets letters."""
    assert sparkline([0, 1, 500, 1000, None, 0]) == "▁▂▅█ ▁"
    assert sparkline([0, 1, 500, 1000, None, 0], "ascii") == "_.=# _"
    assert sparkline([None, None]) == ""
    assert sparkline([0, 0]) == "▁▁"
