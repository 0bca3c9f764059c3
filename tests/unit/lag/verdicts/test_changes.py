"""A group's verdict and its changes: worse at once, better when it has held, and nothing for what is not known."""

from __future__ import annotations

import pytest

from broker.runtime.steps import run_now
from lag.rules.queue_rules import QueueVerdict
from lag.rules.statuses import BY_NAME
from lag.samples import QueueSample
from lag.verdicts.changes import REMOVED, SETTLED_MS, SILENT, GroupVerdict, VerdictChange, Verdicts
from lag.verdicts.windows import JudgedQueue

EVERY_MS = 10_000


def queue(status: str, *, group: str = "g", topic: str = "t", number: int = 0, lag: int | None = 5) -> JudgedQueue:
    """A queue that the rules gave this status."""
    verdict = QueueVerdict(
        time_ms=0,
        now_ms=0,
        figures={"lag": lag, "time_lag_low_ms": 1500.4},
        status=status,
        level=BY_NAME[status].level.name,
        cause=None,
        evidence=f"{number}",
        advice="",
    )
    return JudgedQueue((group, topic, number), verdict, QueueSample(time_ms=0))


def reported(statuses: list[str], verdicts: Verdicts | None = None) -> list[tuple[int, str | None, str]]:
    """Number of the round, status before and after, for a group whose only queue has one status a round."""
    verdicts = Verdicts() if verdicts is None else verdicts
    found = []
    for number, status in enumerate(statuses):
        for change in verdicts.take([] if status == REMOVED else [queue(status)], number * EVERY_MS):
            found.append((number, change.before, change.verdict.status))
    return found


@pytest.mark.parametrize(
    ("statuses", "wanted"),
    [
        (["OK", "OK"], []),
        (["STOP", "STOP"], [(0, None, "STOP")]),
        (["OK", "WARN", "STOP"], [(1, "OK", "WARN"), (2, "WARN", "STOP")]),
        (["STOP"] + ["OK"] * 6, [(0, None, "STOP")]),
        (["STOP"] + ["OK"] * 7, [(0, None, "STOP"), (7, "STOP", "OK")]),
        (["STOP"] + ["OK", "STOP"] * 10, [(0, None, "STOP")]),
        (["STOP"] + ["STALL"] * 7, [(0, None, "STOP"), (7, "STOP", "STALL")]),
        (["STOP"] + ["WARN", "OK"] * 3 + ["WARN"], [(0, None, "STOP"), (7, "STOP", "WARN")]),
        (["STOP"] + ["OK"] * 4 + ["INCOMPLETE"] + ["OK"] * 6, [(0, None, "STOP")]),
        (["STOP"] + [REMOVED] * 9, [(0, None, "STOP"), (7, "STOP", REMOVED)]),
        (["STOP", REMOVED, "STOP"], [(0, None, "STOP")]),
        (["OK"] + [REMOVED] * 9 + ["OK"], []),
        (["INCOMPLETE"] * 9 + ["OK"], []),
        (["STOP"] + ["INCOMPLETE"] * 20 + ["STOP"], [(0, None, "STOP")]),
        (["OK", "UNKNOWN"], [(1, "OK", "UNKNOWN")]),
    ],
)
def test_change_is_told_at_once_where_it_is_worse_and_else_when_it_has_held(
    statuses: list[str], wanted: list[tuple[int, str | None, str]]
) -> None:
    """So a group that goes to and fro posts once; one that is incomplete keeps its verdict."""
    assert SETTLED_MS == 6 * EVERY_MS
    assert reported(statuses) == wanted


def test_worst_queue_decides_and_the_one_with_the_largest_lag_speaks() -> None:
    """Over topics and queues of the group; what the group does not want counted is left out."""
    verdicts = Verdicts()
    queues = [
        queue("OK", number=0, lag=900),
        queue("STOP", number=1, lag=3),
        queue("STOP", number=2, lag=None),
        queue("STOP", topic="u", number=0, lag=7),
        queue("DATA_LOSS", topic="left-out"),
        queue("OK", group="other"),
    ]
    [change] = verdicts.take(queues, 5, lambda group, topic: topic != "left-out")
    verdict = change.verdict
    assert (verdict.status, verdict.queues, verdict.topic, verdict.queue, verdict.lag) == ("STOP", 3, "u", 0, 7)
    assert (verdict.time_lag_ms, verdict.evidence, verdict.since_ms) == (1500, "0", 5)
    assert set(verdicts.current) == {"g", "other"}


def test_key_of_a_change_is_that_of_whoever_saw_the_same_round() -> None:
    """Cluster, node, group, status and moment; nothing else."""
    [change] = Verdicts().take([queue("STOP")], 5)
    [again] = Verdicts().take([queue("STOP", lag=9)], 5)
    keys = [each.as_fields("c", "n")["key"] for each in (change, again)]
    assert keys[0] == keys[1] != change.as_fields("c", "other")["key"]
    fields = change.as_fields("c", "n", ("on-call",))
    assert (fields["level"], fields["before"], fields["alarmGroup"]) == ("ERR", None, ["on-call"])


def test_clock_set_back_begins_a_verdict_no_later_than_now() -> None:
    """What began in the future begins now, and a better verdict still settles."""
    verdicts = Verdicts()
    verdicts.take([queue("STOP")], 1_000_000)
    verdicts.take([queue("STOP")], 500)
    assert verdicts.current["g"].since_ms == 500
    found: list[VerdictChange] = []
    for at in range(1_000, 80_000, EVERY_MS):
        found += verdicts.take([queue("OK")], at)
    assert [each.verdict.status for each in found] == ["OK"]


@pytest.mark.parametrize(
    ("before", "after", "wanted"),
    [
        (["STOP"], ["STOP"] * 2, [(0, None, "STOP")]),
        (["STOP"], ["OK"] * 2, [(0, None, "OK")]),
        (["STOP", "OK"], ["OK"] * 2, [(0, None, "OK")]),
        (["STOP"], ["INCOMPLETE", "OK"], [(1, None, "OK")]),
        (["STOP"], [REMOVED] * 2, [(0, None, REMOVED)]),
        (["OK", "INCOMPLETE"], ["OK"] * 2, []),
    ],
)
def test_restart_reports_what_was_not_ok_before_it(
    before: list[str], after: list[str], wanted: list[tuple[int, str | None, str]]
) -> None:
    """Its last change may be lost; also a group that recovered meanwhile or was removed is reported, once."""
    verdicts = Verdicts()
    for status in before:
        run_now(verdicts.recall([queue(status)], 0))
    assert reported(after, verdicts) == wanted


def test_silent_node_is_worse_than_one_that_records() -> None:
    """At once; and over when it has recorded again for a minute."""
    verdicts = Verdicts()
    rounds = ["OK", SILENT, SILENT] + ["OK"] * 7
    made = [
        verdicts.note("", GroupVerdict(status=status, since_ms=number * EVERY_MS), number * EVERY_MS)
        for number, status in enumerate(rounds)
    ]
    assert [(each.before, each.verdict.status) for each in made if each] == [("OK", SILENT), (SILENT, "OK")]
    assert made[1] is not None
    assert made[-1] is not None
    assert made[1].as_fields("c", "n")["level"] == "UNKNOWN"
