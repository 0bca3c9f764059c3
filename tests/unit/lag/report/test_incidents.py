"""The ledger: incidents over borders of pieces, their causes and losses, and what changed before them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from lag.report.engine import incidents
from lag.report.engine.incidents import IncidentLedger, LedgerIncident, longest, make_ledger
from lag.report.engine.local import reduce_locally
from lag.report.options import Input, ReportOptions, ReportWindow
from lag.rules.limits import LagLimits
from lag.samples import EventKind, LagEvent, QueueSample
from pyddmq.testing.sim_disk import SimDisk
from tests.unit.lag.report.test_local import EVERY_MS, Rounds, sample, write
from tests.unit.lag.samples import NOW_MS

PLACE = ("g", "t", 0)


def ledger(disk: SimDisk, rounds: int, **given: Any) -> IncidentLedger:
    """Return the ledger of some rounds."""
    window = ReportWindow(from_ms=NOW_MS, to_ms=NOW_MS + rounds * EVERY_MS)
    options = ReportOptions(given=Input(journals=["j"]), window=window, limits=LagLimits())
    return make_ledger(disk, options, reduce_locally, **given)


def in_pieces(monkeypatch: pytest.MonkeyPatch, rounds: int) -> None:
    """Make pieces of some rounds, each with a lead of as many as the rules look back."""
    monkeypatch.setattr(incidents, "PIECE_MS", rounds * EVERY_MS)
    monkeypatch.setattr(incidents, "LEAD_MS", 400_000)


def late(number: int, **more: Any) -> QueueSample:
    """Return a sample of a queue whose oldest message is five minutes old."""
    now = NOW_MS + number * EVERY_MS
    return sample(now, **{"end": 500 + number, "committed": 300 + number, "committed_ms": now - 300_000, **more})


def ok(number: int, done: int = 300, **more: Any) -> QueueSample:
    """Return a sample of the same queue when all is finished: 300 at first, 500 behind what was late."""
    return sample(NOW_MS + number * EVERY_MS, **{"end": done + number, "committed": done + number, **more})


def rounds_of(samples: Sequence[QueueSample]) -> Rounds:
    """Return rounds of one queue."""
    return [[(PLACE, each)] for each in samples]


def test_incident_over_a_border_is_one_with_its_longest_cause(monkeypatch: pytest.MonkeyPatch) -> None:
    """Late from round 20 to 80; a rate limit holds it back from 35 on, which is longer."""
    samples = [ok(number) for number in range(20)]
    samples += [late(number, limited=number >= 35) for number in range(20, 80)]
    samples += [ok(number, 500) for number in range(80, 120)]
    disk = SimDisk()
    write(disk, "j", rounds_of(samples))
    in_pieces(monkeypatch, 45)
    [entry] = ledger(disk, 120).incidents
    assert (entry.from_ms, entry.to_ms) == (NOW_MS + 20 * EVERY_MS, NOW_MS + 80 * EVERY_MS)
    assert (entry.seconds, entry.status, entry.cause, entry.peak_lag) == (600.0, "WARN", "rate limit", 200)
    assert ledger(disk, 120, cause="rate_limit").incidents == [entry]
    assert ledger(disk, 120, cause="no_consumer").incidents == []
    assert ledger(disk, 120, topic="other").incidents == []


def test_last_sample_before_a_border_speaks_until_the_next_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """A limit holds the queue back for as long as it is slow then; of two equal times the first counts."""
    samples = [ok(number) for number in range(20)]
    samples += [late(number, limited=number < 45) for number in range(20, 70)]
    samples += [ok(number, 500) for number in range(70, 120)]
    disk = SimDisk()
    write(disk, "j", rounds_of(samples))
    assert [each.cause for each in ledger(disk, 120).incidents] == ["rate limit"]
    in_pieces(monkeypatch, 45)
    assert [each.cause for each in ledger(disk, 120).incidents] == ["rate limit"]


def test_losses_at_and_beside_a_border_are_counted_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three losses: before a border, with the first sample behind it, and later."""
    lost_at = {43: 7, 45: 5, 47: 3}
    samples, lost = [], 0
    for number in range(120):
        lost += lost_at.get(number, 0)
        samples.append(
            late(number, expired=lost) if 20 <= number < 60 else ok(number, 300 if number < 20 else 500, expired=lost)
        )
    disk = SimDisk()
    write(disk, "j", rounds_of(samples))
    in_pieces(monkeypatch, 45)
    made = ledger(disk, 120)
    assert [each.lost for each in made.incidents] == [15]
    assert [(each.incidents, each.lost) for each in made.months] == [(1, 15)]


def wild(random: Random, rounds: int) -> Rounds:
    """Return rounds of three queues that fall behind and recover, lose messages, and are not recorded at times."""
    state = {("g", "t", 0): [100, 100, 0, 0], ("g", "t", 1): [100, 100, 0, 0], ("h", "t", 0): [100, 100, 0, 0]}
    speed = dict.fromkeys(state, 5)
    found: list[Any] = []
    silent = 0
    for number in range(rounds):
        now = NOW_MS + number * EVERY_MS
        silent = silent - 1 if silent else 30 * (random.random() < 0.01)
        rows = [(("filler", "t", 0), sample(now))]
        for key, each in state.items():
            if random.random() < 0.03:
                speed[key] = random.choice((0, 2, 5, 200))
            each[0] += 5
            done = min(each[0], each[1] + speed[key])
            each[3] = now if done > each[1] else each[3]
            each[1] = done
            if random.random() < 0.01 and each[0] > each[1]:
                gone = random.randrange(1, each[0] - each[1] + 1)
                each[1], each[2] = each[1] + gone, each[2] + gone
            lag = each[0] - each[1]
            if not silent:
                rows.append((key, sample(
                    now, end=each[0], committed=each[1], expired=each[2], moved_ms=each[3] or None,
                    committed_ms=now - lag * 2_000 if lag else None, holders=int(speed[key] > 0),
                    asked_ms=now if speed[key] else each[3] or None, limited=speed[key] == 2,
                )))  # fmt: skip
        found.append(rows)
    return found


@pytest.mark.parametrize("seed", range(4))
def test_pieces_have_the_incidents_of_the_whole(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    """Whatever queues do, and wherever the borders are."""
    disk, random = SimDisk(), Random(seed)
    write(disk, "j", wild(random, 600))

    def plain(made: IncidentLedger) -> list[LedgerIncident]:
        return [replace(each, changes=()) for each in made.incidents]

    whole = plain(ledger(disk, 600))
    assert len(whole) > 5
    for rounds in (random.randrange(60, 300), 60):
        in_pieces(monkeypatch, rounds)
        assert plain(ledger(disk, 600)) == whole, rounds


def test_incident_says_what_changed_before() -> None:
    """A reload, fewer clients and another queue; what is of another group or of long ago is not listed."""
    rounds: list[Any] = []
    for number in range(200):
        is_late = number >= 150
        row = late(number, holders=0, asked_ms=NOW_MS + 1_480_000) if is_late else ok(number, holders=2)
        extra = [(("g", "t", 1), ok(number, holders=2 * (not is_late)))] if number >= 149 else []
        rounds.append([(PLACE, row), *extra])
    events = [
        LagEvent(time_ms=NOW_MS + 1_300_000, kind=EventKind.RELOAD, detail="node.yaml"),
        LagEvent(time_ms=NOW_MS + 1_400_000, kind=EventKind.RESET, group="other", topic="t"),
        LagEvent(time_ms=NOW_MS + 1_400_001, kind=EventKind.RETENTION, topic="t"),
    ]
    disk = SimDisk()
    write(disk, "j", rounds, events)
    [entry] = ledger(disk, 200).incidents
    assert entry.to_ms is None
    [reload, clients, queues] = entry.changes
    assert reload.endswith("reload of node n: node.yaml")
    assert (clients, queues) == ("clients: 2 before, 0 now", "queues: 1 before, 2 now")


def test_incident_that_is_never_recorded_again_stays_open(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the moment of its last sample; once its queue is recorded again, it ended then."""
    rounds: list[Any] = [[(PLACE, (late if number >= 20 else ok)(number))] for number in range(30)]
    rest: list[Any] = [[(("other", "t", 0), ok(number))] for number in range(30, 200)]
    in_pieces(monkeypatch, 50)
    for again, to_ms in (([], None), ([[(PLACE, ok(200))]], NOW_MS + 29 * EVERY_MS)):
        disk = SimDisk()
        write(disk, "j", [*rounds, *rest, *again])
        [entry] = ledger(disk, 201).incidents
        assert (entry.to_ms, entry.seen_ms, entry.seconds) == (to_ms, NOW_MS + 29 * EVERY_MS, 90.0)


def test_days_with_many_samples_are_read_in_shorter_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """And none is shorter than its lead; together they are the window."""
    disk = SimDisk()
    write(disk, "j", rounds_of([ok(number) for number in range(4_000)]))
    window = ReportWindow(from_ms=NOW_MS, to_ms=NOW_MS + 90_000_000)
    options = ReportOptions(given=Input(journals=["j"]), window=window, limits=LagLimits())
    day = [(each.counted_ms, each.to_ms) for each in incidents.pieces_of(disk, options)]
    assert day == [(NOW_MS, NOW_MS + 86_400_000)], "the second day has no samples"
    monkeypatch.setattr(incidents, "SAMPLES_MAX", 100)
    pieces = list(incidents.pieces_of(disk, options))
    assert [each.counted_ms for each in pieces] == [NOW_MS + 7_200_000 * number for number in range(12)]
    assert [each.to_ms for each in pieces] == [*(each.counted_ms for each in pieces[1:]), NOW_MS + 86_400_000]
    assert (pieces[1].from_ms, pieces[2].from_ms) == (NOW_MS, NOW_MS + 7_200_000)


def test_longest_cause_is_a_known_one() -> None:
    """Of equal ones the first; no cause only where there is no other."""
    assert longest({None: 900, "a": 10, "b": 20, "c": 20}) == "b"
    assert longest({None: 900}) is None
