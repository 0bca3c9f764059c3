"""What holds of statuses for all windows: missing data never gives OK, and the worst wins."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations_with_replacement
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from lag.rules.limits import LagLimits
from lag.rules.statuses import BY_NAME, SEVERITY, STATUSES, Level, level, worst
from lag.samples import QueueSample
from tests.unit.lag.rules.cases import CASES, Case
from tests.unit.lag.rules.judged import judge
from tests.unit.lag.rules.random_windows import windows

NEEDED = ("start", "end", "committed")
MAY_MISS = (
    "committed_ms",
    "started",
    "started_ms",
    "start_ms",
    "end_ms",
    "moved_ms",
    "answered_ms",
    "asked_ms",
    "matched",
)


def without(sample: QueueSample, *names: str) -> QueueSample:
    """Return a sample in which fields are not known."""
    unknown: dict[str, Any] = dict.fromkeys(names)
    return replace(sample, **unknown)


def test_order_and_levels() -> None:
    """Worst first, as the page has it; what is not known is none of the levels that a check passes."""
    assert [each.name for each in STATUSES] == [
        "DATA_LOSS",
        "AHEAD",
        "REWIND",
        "BLOCKED",
        "STOP",
        "NOT_CONSUMED",
        "STALL",
        "UNKNOWN",
        "RETENTION_RISK",
        "WARN",
        "NO_OFFSET",
        "INCOMPLETE",
        "CATCHING_UP",
        "PAUSED",
        "OK",
    ]
    levels = {each.name: each.level for each in STATUSES}
    assert {name for name, found in levels.items() if found is Level.OK} == {"OK", "CATCHING_UP", "PAUSED"}
    assert {name for name, found in levels.items() if found is Level.WARN} == {"WARN", "NO_OFFSET", "RETENTION_RISK"}
    assert {name for name, found in levels.items() if found is Level.UNKNOWN} == {"UNKNOWN", "INCOMPLETE"}


def test_worst_wins() -> None:
    """In whichever order they come; nothing at all is UNKNOWN."""
    for first, second in combinations_with_replacement([each.name for each in STATUSES], 2):
        assert worst([first, second]) == worst([second, first]) == first
    assert worst([]) == "UNKNOWN"
    assert level(["OK", "WARN", "CATCHING_UP"]) is Level.WARN
    assert level(["OK", "STOP", "WARN"]) is Level.ERR
    assert SEVERITY["DATA_LOSS"] > SEVERITY["OK"] == 1


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
@pytest.mark.parametrize("name", NEEDED)
def test_a_case_without_what_it_needs_is_not_ok(case: Case, name: str) -> None:
    """Neither OK nor a level that passes, unless an operator paused it."""
    samples = [*case.samples[:-1], without(case.samples[-1], name)]
    verdict = judge(samples, case.now_ms, case.limits, case.reset_ms)
    assert verdict.status not in ("OK", "CATCHING_UP")
    assert verdict.level != "OK" or case.samples[-1].paused


@given(windows(), st.sampled_from(NEEDED))
def test_missing_data_never_gives_ok(samples: list[QueueSample], name: str) -> None:
    """A field that is needed, too few samples, too old ones."""
    now = samples[-1].time_ms
    blind = [*samples[:-1], without(samples[-1], name)]
    assert judge(blind, now).status not in ("OK", "CATCHING_UP")
    assert judge(samples[-2:], now).status not in ("OK", "CATCHING_UP")
    assert judge(samples, now + LagLimits().stale_ms + 1).status not in (
        "OK",
        "CATCHING_UP",
        "WARN",
        "STOP",
        "STALL",
        "BLOCKED",
    )


def belied(samples: list[QueueSample]) -> bool:
    """Whether the oldest unfinished message is said to be older than a sample in which it was not there yet."""
    last = samples[-1]
    if last.committed is None or last.committed_ms is None:
        return False
    return any(
        each.end is not None and each.end <= last.committed and each.time_ms > last.committed_ms for each in samples
    )


@given(windows(), st.sets(st.sampled_from(MAY_MISS)))
def test_less_data_never_makes_a_queue_ok(samples: list[QueueSample], names: set[str]) -> None:
    """What may be missing of all samples may cost the finding, and never turns it into OK.

    A moment that the ends belie is no finding: without it the ends alone speak, and may say OK.
    """
    assume("committed_ms" not in names or not belied(samples))
    now = samples[-1].time_ms
    before = judge(samples, now).status
    after = judge([without(sample, *names) for sample in samples], now).status
    if before != "OK":
        assert after != "OK", f"{before} became OK without {sorted(names)}"


@given(windows())
def test_every_window_has_a_status_of_the_table(samples: list[QueueSample]) -> None:
    """Whatever was recorded."""
    verdict = judge(samples, samples[-1].time_ms)
    assert verdict.level == BY_NAME[verdict.status].level.name
