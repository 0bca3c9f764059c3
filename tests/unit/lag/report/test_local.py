"""The report that needs no Spark: what it makes of journals that are odd, and of queues that rest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from lag.journal.columns import Key
from lag.journal.writer import JournalOrigin, JournalWriter, WriterLimits
from lag.report.data import GroupPart, LagReportData
from lag.report.engine import column_facts, column_samples, local
from lag.report.engine.local import make_locally
from lag.report.options import Input, ReportOptions, ReportWindow
from lag.rules.limits import LagLimits
from lag.samples import EventKind, LagEvent, QueueSample
from pyddmq.testing.sim_disk import SimDisk
from tests.unit.lag.samples import NOW_MS, fleet

EVERY_MS = 10_000
Rounds = Sequence[Sequence[tuple[Key, QueueSample]]]


def write(disk: SimDisk, folder: str, rounds: Rounds, events: Sequence[LagEvent] = (), node: str = "n") -> None:
    """Write a node's rounds, and events before the first round that is not earlier."""
    limits = WriterLimits(free_bytes_min=0)
    journal = JournalWriter(disk, folder, JournalOrigin(cluster="c", node=node, epoch=len(folder)), limits)
    rest = sorted(events, key=lambda event: event.time_ms)
    for rows in rounds:
        now = rows[0][1].time_ms
        while rest and rest[0].time_ms <= now:
            journal.note(rest.pop(0))
        assert journal.write(now, rows)
    for event in rest:
        journal.note(event)
    end = rounds[-1][0][1].time_ms + EVERY_MS
    assert journal.write(end, [(("closing", "t", 0), sample(end))])
    journal.close(end)


def sample(now: int, *, end: int = 100, committed: int = 100, **known: Any) -> QueueSample:
    """Make a sample of a queue that a consumer keeps up with."""
    usual: dict[str, Any] = {"start": 0, "moved_ms": now, "asked_ms": now, "answered_ms": now, "holders": 1}
    return QueueSample(time_ms=now, end=end, committed=committed, **{**usual, **known})


def rounds_of(count: int, key: Key = ("g", "t", 0), **known: Any) -> list[list[tuple[Key, QueueSample]]]:
    """Make rounds of one queue."""
    return [[(key, sample(NOW_MS + number * EVERY_MS, **known))] for number in range(count)]


def made(disk: SimDisk, *folders: str, rounds: int, **given: Any) -> LagReportData:
    """Make the report over some rounds."""
    window = ReportWindow(from_ms=NOW_MS, to_ms=NOW_MS + rounds * EVERY_MS)
    options = ReportOptions(
        given=Input(journals=folders), window=window, limits=LagLimits(), **{"compared": False, **given}
    )
    return make_locally(disk, options)


def part(report: LagReportData, name: str) -> GroupPart:
    """Return a group."""
    return next(each for each in report.groups if each.group == name)


@pytest.mark.parametrize("moving", [0.0, 0.3, 1.0])
def test_report_does_not_depend_on_how_much_is_judged_at_once(monkeypatch: pytest.MonkeyPatch, moving: float) -> None:
    """Topics one by one, and rows of a few snapshots at a time, are the same report."""
    disk, rounds = SimDisk(), fleet(3, 12, 90, moving)
    # Clients ask all the time, and two queues of which nothing moves have a lag.
    rounds = [
        [
            (key, replace(each, asked_ms=each.time_ms, committed=(each.committed or 0) - 50 * (key[2] == 7)))
            for key, each in rows
        ]
        for rows in rounds
    ]
    write(disk, "j", rounds)
    whole = made(disk, "j", rounds=90)
    monkeypatch.setattr(local, "BLOCK_ROWS", 1)
    monkeypatch.setattr(column_samples, "CHUNK_ROWS", 50)
    monkeypatch.setattr(column_facts, "MATRIX", 100)
    assert made(disk, "j", rounds=90) == whole


def test_journal_without_samples_is_an_empty_report() -> None:
    """Without a group, and without an error."""
    disk = SimDisk()
    disk.make_folder("j")
    report = made(disk, "j", rounds=3)
    assert (report.samples, report.groups, report.level) == (0, [], "UNKNOWN")


@pytest.mark.parametrize("known", [{}, {"committed": 5, "expired": 3}])
def test_window_in_which_nothing_could_be_read_is_unknown(known: dict[str, Any]) -> None:
    """As while a Kafka cluster does not respond."""
    disk = SimDisk()
    rounds = [[(("g", "t", 0), QueueSample(time_ms=NOW_MS + number * EVERY_MS, **known))] for number in range(30)]
    write(disk, "j", rounds)
    window = ReportWindow(from_ms=NOW_MS, to_ms=NOW_MS + 30 * EVERY_MS)
    given = Input(journals=["j"], groups=frozenset({"g"}))
    report = make_locally(disk, ReportOptions(given=given, window=window, limits=LagLimits()))
    assert (part(report, "g").status, part(report, "g").lag, report.level) == ("UNKNOWN", None, "UNKNOWN")
    assert [each.status for each in part(report, "g").incidents] == ["UNKNOWN"]


@pytest.mark.parametrize(("other", "known"), [("grows", False), ("unread", False), ("idle", True)])
def test_group_is_caught_up_when_its_last_queue_is(other: str, known: bool) -> None:
    """Never, where one of them is not, and unknown where that is unknown of one."""
    disk, rounds = SimDisk(), []
    for number in range(31):
        now = NOW_MS + number * EVERY_MS
        shrinks = sample(now, end=1_000, committed=300 + 10 * number, committed_ms=now - 5_000)
        second = {
            "grows": sample(now, end=1_000 + 10 * number, committed=100, committed_ms=now - 5_000),
            "unread": QueueSample(time_ms=now),
            "idle": sample(now),
        }[other]
        rounds.append([(("g", "t", 0), shrinks), (("g", "t", 1), second)])
    write(disk, "j", rounds)
    found = part(made(disk, "j", rounds=31), "g").catch_up_seconds
    assert found == (pytest.approx(400.0) if known else None)


def test_thousands_of_resets_are_one_mark_and_no_rewind() -> None:
    """A reset of a topic writes an event for each queue, and the offsets that it sets are no fault of anything."""
    disk, count = SimDisk(), 1_000
    rounds = [
        [
            (("g", "t", queue), sample(NOW_MS + number * EVERY_MS, committed=100 if number < 5 else 60))
            for queue in range(0, count, 128)
        ]
        for number in range(8)
    ]
    events = [
        LagEvent(time_ms=NOW_MS + number * EVERY_MS - 1, kind=EventKind.RESET, group="g", topic="t", queue=queue)
        for number in (5, 6, 7)
        for queue in range(count)
    ]
    write(disk, "j", rounds, events)
    report = made(disk, "j", rounds=8)
    assert [(mark.kind, mark.count) for mark in report.marks] == [("reset", 3 * count)]
    assert "REWIND" not in {each.status for each in part(report, "g").incidents}


def test_of_two_samples_in_one_millisecond_the_later_counts() -> None:
    """And nothing is divided by the time between them."""
    disk = SimDisk()
    write(disk, "j", [each for rows in rounds_of(12) for each in (rows, [(rows[0][0], replace(rows[0][1], end=130))])])
    report = made(disk, "j", rounds=12)
    assert part(report, "g").objective.samples == 12
    assert part(report, "g").lag == 30


def test_nodes_with_one_name_are_kept_apart() -> None:
    """Each has its own queue, by the folder that it was read from."""
    disk = SimDisk()
    write(disk, "one", rounds_of(12))
    write(disk, "two", rounds_of(12, end=700))
    write(disk, "other", rounds_of(12), node="m")
    report = made(disk, "one", "two", "other", rounds=12)
    assert sorted((each.node, each.lag) for each in part(report, "g").queues) == [
        ("m", 0), ("n (one)", 0), ("n (two)", 600),
    ]  # fmt: skip


@pytest.mark.parametrize("moment", [0, NOW_MS + 90 * 86_400_000])
def test_message_times_that_cannot_be_are_left_out_and_counted(moment: int) -> None:
    """No age of 56 years, and no age of 0 of what waits."""
    disk = SimDisk()
    write(disk, "j", rounds_of(12, end=900, committed_ms=moment))
    report = made(disk, "j", rounds=12)
    assert part(report, "g").seconds is None
    assert [gap for gap in report.gaps if "12 samples have message times before the year 2000 or in the future" in gap]


def test_deleted_group_has_left_and_is_not_unknown() -> None:
    """With the moment; its incident ended then, and its bands end there."""
    disk = SimDisk()
    left_ms = NOW_MS + 40 * EVERY_MS - 1
    rounds = rounds_of(40, end=900, holders=0, moved_ms=NOW_MS, asked_ms=NOW_MS, answered_ms=NOW_MS)
    rounds += rounds_of(200, ("stays", "t", 0))[40:]
    write(disk, "j", rounds, [LagEvent(time_ms=left_ms, kind=EventKind.LEFT, group="g")])
    report = made(disk, "j", rounds=200)
    gone = part(report, "g")
    assert (gone.status, gone.level, gone.left_ms, gone.lag) == ("LEFT", "OK", left_ms, None)
    assert {each.to_ms for each in gone.incidents} == {left_ms}
    assert gone.spans[-1].to_ms < report.to_ms
    assert gone.spans[-1].status == "STOP"
    assert report.level == "OK"


def test_lost_messages_are_missed_and_skipped_ones_do_not_count() -> None:
    """The committed offset passes over both."""
    disk = SimDisk()
    rounds = [
        [
            (
                ("g", "t", 0),
                sample(
                    NOW_MS + number * EVERY_MS,
                    start=80 * (number > 5), expired=30 * (number > 5), skipped=7 * (number > 8),
                    end=100 + number * 10, committed=100 + number * 10,
                ),
            )
        ]
        for number in range(12)
    ]  # fmt: skip
    write(disk, "j", rounds)
    found = part(made(disk, "j", rounds=12), "g")
    assert found.lost == 30
    assert found.objective.messages_share == pytest.approx((110 - 10 - 7) / (110 - 10 - 7 + 30))
    [incident] = [each for each in found.incidents if each.status == "DATA_LOSS"]
    assert incident.lost == 30


def test_coverage_stands_beside_the_share() -> None:
    """Of three samples in the period before, a share says little."""
    disk = SimDisk()
    rounds = rounds_of(3) + [
        [(key, replace(each, time_ms=each.time_ms + 100 * EVERY_MS))] for [(key, each)] in rounds_of(100)
    ]
    write(disk, "j", rounds)
    window = ReportWindow(from_ms=NOW_MS + 100 * EVERY_MS, to_ms=NOW_MS + 200 * EVERY_MS)
    options = ReportOptions(given=Input(journals=["j"]), window=window, limits=LagLimits())
    found = part(make_locally(disk, options), "g").objective
    assert (found.samples, found.coverage) == (100, 1.0)
    assert (found.earlier_samples, found.earlier_samples_share) == (3, 1.0)
    assert found.earlier_coverage == pytest.approx(0.02)


def test_time_of_which_nothing_is_known_is_not_covered() -> None:
    """Neither the quarter hour before the first sample nor its end, whatever pauses are among the samples."""
    disk = SimDisk()
    write(
        disk, "j", [row for number, row in enumerate(rounds_of(180)) if number >= 90 and number not in range(100, 105)]
    )
    assert part(made(disk, "j", rounds=200), "g").objective.coverage == pytest.approx(89 / 200)


def test_messages_lost_before_the_first_kept_one_are_not_finished_later() -> None:
    """A group of a Kafka cluster keeps its committed offset below the first kept message, and then jumps over it."""
    disk = SimDisk()
    ten: dict[str, Any] = {"start": 400, "end": 500, "expired": 350, "committed_ms": None}
    steps = [{**ten, "start": 0, "expired": 0, "committed": 50}, {**ten, "committed": 50}, {**ten, "committed": 500}]
    rows = [[(("g", "t", 0), sample(NOW_MS + at * EVERY_MS, **each))] for at, each in enumerate(steps)]
    write(disk, "j", rows)
    assert made(disk, "j", rounds=3).groups[0].lost == 350
    reduced = local.reduce_locally(disk, ReportOptions(
        given=Input(journals=["j"]), window=ReportWindow(from_ms=NOW_MS, to_ms=NOW_MS + 3 * EVERY_MS),
        limits=LagLimits()
    ))  # fmt: skip
    assert [row["ended"] for row in reduced.objectives if row["group"] == "g"] == [350 + 100]


@pytest.mark.parametrize(("limited", "cause"), [(20, "rate limit"), (3, "slow consumer")])
def test_incident_has_the_cause_that_held_longest(limited: int, cause: str) -> None:
    """Of 24 late samples some are held back by a rate limit, the last ones."""
    disk, rounds = SimDisk(), []
    for number in range(40):
        now, is_late = NOW_MS + number * EVERY_MS, 5 <= number < 29
        late = (
            {"committed_ms": now - 300_000, "end": 300 + number, "limited": number >= 29 - limited} if is_late else {}
        )
        done = 100 + number if number < 29 else 300 + number
        rounds.append([(("g", "t", 0), sample(now, **{"end": done, "committed": done, **late}))])
    write(disk, "j", rounds)
    [found] = part(made(disk, "j", rounds=40), "g").incidents
    assert (found.status, found.cause, found.from_ms) == ("WARN", cause, NOW_MS + 5 * EVERY_MS)
