"""Lag as people read it: one line of advice for what is alike, the worst first."""

from __future__ import annotations

from proxy.operate.lag_texts import advices, behind, forecast, sparkline
from tests.lag_answers import lag_queue


def test_queues_of_a_group_with_one_status_share_a_line_of_advice() -> None:
    """A topic of many queues gives one line, and the worst stands first."""
    queues = [lag_queue(queue=number, status="INCOMPLETE") for number in (0, 1, 2, 5)]
    queues += [lag_queue(topic="payments", queue=0, status="INCOMPLETE"), lag_queue(queue=3, status="STOP")]
    queues += [lag_queue("audit", queue=number, status="INCOMPLETE") for number in range(2)]
    queues += [lag_queue("audit", queue=9)]
    assert [(each.level, each.text) for each in advices(queues)] == [
        ("ERR", "billing: orders 3 is STOP."),
        ("UNKNOWN", "audit is INCOMPLETE in 2 queues: orders 0-1."),
        ("UNKNOWN", "billing is INCOMPLETE in 5 queues: orders 0-2, 5; payments 0."),
    ]
    assert advices(queues)[1].todo == "Wait until more was recorded."


def test_line_of_advice_is_bounded() -> None:
    """However many topics and gaps there are."""
    queues = [lag_queue(topic=f"t{number}", status="STALL") for number in range(9)]
    [found] = advices(queues)
    assert found.text == "billing is STALL in 9 queues: t0 0; t1 0; t2 0; t3 0; t4 0 and 4 more topics."
    [found] = advices([lag_queue(queue=number * 2, status="STALL") for number in range(9)])
    assert found.text == "billing is STALL in 9 queues: orders 0, 2, 4, 6, 8 and others."


def test_advice_that_differs_stands_apart() -> None:
    """Two causes of one status are two things to do."""
    found = advices([lag_queue(queue=0, status="STOP", advice="A."), lag_queue(queue=1, status="STOP", advice="B.")])
    assert [each.todo for each in found] == ["A.", "B."]


def test_what_is_not_known_is_said_so() -> None:
    """Never 0, and an estimate by its method."""
    assert behind(lag_queue(time_lag_ms=None, time_lag_low_ms=None)) == "?"
    bounded = lag_queue(time_lag_ms=None, time_lag_low_ms=61_000, time_lag_method="bounded")
    assert behind(bounded) == "at least 1 min 1 s (bounded)"
    assert behind(lag_queue(time_lag_ms=5_000, time_lag_method="interpolated")) == "about 5.0 s (interpolated)"
    assert forecast(lag_queue(unfinished=3, velocity=None)) == ""
    assert forecast(lag_queue(unfinished=3, velocity=0.5)) == "grows by 0.5/s"
    assert forecast(lag_queue(unfinished=3, velocity=-1.0, catch_up_s=240.0)) == "caught up in 4 min"


def test_sparkline_shows_what_is_not_nothing_and_leaves_blank_what_is_not_known() -> None:
    """The highest is the top; a terminal without blocks gets letters."""
    assert sparkline([0, 1, 500, 1000, None, 0]) == "▁▂▅█ ▁"
    assert sparkline([0, 1, 500, 1000, None, 0], "ascii") == "_.=# _"
    assert sparkline([None, None]) == ""
    assert sparkline([0, 0]) == "▁▁"
