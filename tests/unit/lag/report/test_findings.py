"""Findings are the incidents of the window, open or ended; equal ones are one, and the summary is one sentence."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from lag.report.data import GroupPart, Incident, StatusSpan
from lag.report.engine.findings import FINDINGS_MAX, findings_of, marks_of, worst_open
from lag.report.engine.parts import summary_of
from lag.report.options import ReportWindow
from tests.unit.lag.report.examples import FROM_MS, TO_MS, group_part

WINDOW = ReportWindow(from_ms=FROM_MS, to_ms=TO_MS)
MINUTE_MS = 60_000


def incident(status: str, begin: int, end: int | None, cause: str = "no consumer", **given: Any) -> Incident:
    """Make an incident from one minute of the window to another."""
    usual: dict[str, Any] = {
        "topic": "t", "queue": 0, "evidence": "5 wait", "peak_lag": 5, "peak_seconds": 60.0, "lost": 0,
    }  # fmt: skip
    return Incident(
        status=status,
        cause=cause,
        from_ms=FROM_MS + begin * MINUTE_MS,
        to_ms=None if end is None else FROM_MS + end * MINUTE_MS,
        **{**usual, **given},
    )


def part(name: str, status: str, *incidents: Incident, lost: int = 0) -> GroupPart:
    """Make a group with this status at the end."""
    level = {"OK": "OK", "WARN": "WARN", "UNKNOWN": "UNKNOWN"}.get(status, "ERR")
    return replace(group_part(name), status=status, level=level, incidents=incidents, lost=lost, cause="")


def test_outage_that_ended_is_a_finding() -> None:
    """With its begin, end, loss and both advices."""
    [found], _ = findings_of([part("a", "OK", incident("STOP", 10, 70, lost=7))])
    assert (found.groups, found.status, found.level, found.lost) == (["a"], "STOP", "ERR", 7)
    assert (found.from_ms, found.to_ms) == (FROM_MS + 10 * MINUTE_MS, FROM_MS + 70 * MINUTE_MS)
    assert found.status_advice.startswith("Start the consumers")
    assert found.cause_advice.startswith("Start the group's consumers")


def test_worst_comes_first_then_what_is_open() -> None:
    """Then what cost the most."""
    found, _ = findings_of(
        [
            part("warned", "WARN", incident("WARN", 10, None)),
            part("ended", "OK", incident("STOP", 10, 70, lost=9)),
            part("open", "STOP", incident("STOP", 300, None)),
        ]
    )
    assert [each.groups for each in found] == [["open"], ["ended"], ["warned"]]


def test_equal_incidents_of_a_group_are_one_finding() -> None:
    """Ended ones from the first to the last; one that is open says since when it is."""
    ended = [incident("STOP", begin, begin + 5, lost=1) for begin in (10, 50, 90)]
    [found], _ = findings_of([part("a", "OK", *ended)])
    assert (found.times, found.lost) == (3, 3)
    assert (found.from_ms, found.to_ms) == (ended[0].from_ms, ended[2].to_ms)
    [found], _ = findings_of([part("a", "STOP", *ended, incident("STOP", 200, None))])
    assert (found.times, found.from_ms, found.to_ms) == (4, FROM_MS + 200 * MINUTE_MS, None)


def test_one_reason_for_many_groups_is_one_finding() -> None:
    """Equal in status and cause and at the same time; another time is another finding."""
    groups = [part(f"g{number}", "STOP", incident("STOP", 100 + number % 2, None)) for number in range(9)]
    other = part("later", "STOP", incident("STOP", 200, None))
    found, _ = findings_of([*groups, other])
    assert [len(each.groups) for each in found] == [9, 1]


def test_open_finding_of_a_group_that_was_recorded_no_longer_says_until_when() -> None:
    """Whether it has ended is not known."""
    ended = StatusSpan(from_ms=FROM_MS + 5 * MINUTE_MS, to_ms=TO_MS, status="UNKNOWN")
    went = replace(part("a", "UNKNOWN", incident("STOP", 1, None)), spans=[ended])
    [[finding], _] = findings_of([went])
    assert (finding.to_ms, finding.seen_ms) == (None, ended.from_ms)
    [[finding], _] = findings_of([replace(went, status="STOP")])
    assert (finding.to_ms, finding.seen_ms) == (None, None)


def test_findings_above_the_bound_are_counted() -> None:
    """The worst are shown."""
    groups = [part(f"g{number}", "OK", incident("STOP", 10 * number, 10 * number + 5)) for number in range(25)]
    found, left_out = findings_of(groups)
    assert (len(found), left_out) == (FINDINGS_MAX, 15)


def test_summary_says_who_was_is_and_what_was_lost() -> None:
    """In one sentence."""
    groups = [part(f"well {number}", "OK") for number in range(9)]
    groups += [
        part("billing", "STOP", incident("STOP", 194, None)),
        part("mailer", "OK", incident("WARN", 10, 20)),
        part("audit", "OK", incident("DATA_LOSS", 10, 20), lost=1_204),
    ]
    assert summary_of(groups, WINDOW, "UTC") == (
        "3 of 12 groups were in trouble; 1 still is: billing STOP since 2024-05-06 02:14; "
        "1\u202f204 messages were lost."
    ).replace("2024-05-06 02:14", "02:14")


def test_summary_never_calls_unknown_good() -> None:
    """Nor a window without samples."""
    assert summary_of([part("a", "UNKNOWN")], WINDOW, "UTC") == (
        "No trouble is known of 1 group; nothing is known of a at the end."
    )
    assert "nothing can be said" in summary_of([], WINDOW, "UTC")
    assert summary_of([part("a", "OK"), part("b", "OK")], WINDOW, "UTC") == "All 2 groups were OK."


def test_level_is_the_worst_at_the_end() -> None:
    """What ended does not count, and nothing at all is unknown."""
    assert worst_open([part("a", "OK", incident("STOP", 1, 2))]) == "OK"
    assert worst_open([part("a", "OK"), part("b", "WARN")]) == "WARN"
    assert worst_open([part("a", "UNKNOWN"), part("b", "WARN")]) == "UNKNOWN"
    assert worst_open([part("a", "UNKNOWN"), part("b", "STOP")]) == "ERR"
    assert worst_open([]) == "UNKNOWN"
    assert worst_open([replace(part("a", "OK"), status="LEFT")]) == "OK"


def event(minute: float, kind: str, group: str = "", topic: str = "") -> dict[str, Any]:
    """Make an event at a minute of the window."""
    return {
        "time_ms": FROM_MS + int(minute * MINUTE_MS), "kind": kind, "node": "n", "group": group, "topic": topic,
        "queue": -1, "detail": "",
    }  # fmt: skip


def test_equal_events_of_a_moment_are_one_mark() -> None:
    """A reset writes an event for each queue; those outside the window are no marks."""
    resets = [event(5 + number / 100_000, "reset", "a", "t") for number in range(1_024)]
    found, left_out = marks_of([*resets, event(5, "reset", "b"), event(-1, "start"), event(1, "reload")], WINDOW)
    assert [(each.kind, each.group, each.topic, each.count) for each in found] == [
        ("reload", "", "", 1),
        ("reset", "a", "t", 1_024),
        ("reset", "b", "", 1),
    ]
    assert left_out == 0


def test_retention_gives_way_to_what_people_did() -> None:
    """Where there are more events than a report lists."""
    many = [event(2 * number, "retention") for number in range(300)]
    found, left_out = marks_of([*many, event(700, "reset", "a")], WINDOW)
    assert found[-1].kind == "reset"
    assert left_out == 101
