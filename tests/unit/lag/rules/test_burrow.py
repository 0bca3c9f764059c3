"""Burrow's mode against its table, written out a second time as it stands, over thousands of random windows."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest

from lag.rules.burrow import BurrowOptions, BurrowStatus, Commit, commits_of, evaluate, group_status, judge
from tests.unit.lag.rules.cases import BEGIN, window

WINDOWS = 20_000


def by_the_table(
    commits: list[Commit], ends: list[int], current_lag: int, now_ms: int, options: BurrowOptions
) -> BurrowStatus:
    """Return the status by the table, row by row, with a loop for every "some", "all" and "never"."""
    if len(commits) == 0:
        return BurrowStatus.NOTFOUND
    complete = len(commits) / options.intervals
    if complete < options.minimum_complete:
        return BurrowStatus.OK
    if current_lag <= options.allowed_lag:
        return BurrowStatus.OK

    t_first, t_last = commits[0].time_ms, commits[len(commits) - 1].time_ms
    some_end_reached = False
    for end in ends:
        if end <= commits[len(commits) - 1].offset:
            some_end_reached = True
    if now_ms - t_last > t_last - t_first and not some_end_reached:
        return BurrowStatus.STOP

    for i in range(1, len(commits)):
        if commits[i].offset < commits[i - 1].offset:
            reached_again = False
            for j in range(i + 1, len(commits)):
                if commits[j].offset >= commits[i - 1].offset:
                    reached_again = True
            if not reached_again:
                return BurrowStatus.REWIND

    for i in range(len(commits)):
        if commits[i].lag <= options.allowed_lag:
            return BurrowStatus.OK

    all_equal = True
    for i in range(1, len(commits)):
        if commits[i].offset != commits[i - 1].offset:
            all_equal = False
    if all_equal:
        return BurrowStatus.STALL

    for i in range(1, len(commits)):
        if commits[i].lag < commits[i - 1].lag:
            return BurrowStatus.OK
    return BurrowStatus.WARN


def random_window(random: Random) -> tuple[list[Commit], list[int], int, int, BurrowOptions]:
    """Return a window in which every row of the table comes up often."""
    options = BurrowOptions(
        intervals=random.choice([1, 3, 10]),
        minimum_complete=random.choice([0.0, 0.0, 0.5, 1.0]),
        allowed_lag=random.choice([0, 0, 5]),
    )
    now, offset, end, commits = BEGIN, 100, 110, []
    flat, backs = random.random() < 0.3, random.random() < 0.4
    for _ in range(random.randint(0, options.intervals)):
        now += random.choice([1000, 1000, 3000])
        offset += 0 if flat else random.choice([-4, 5, 20]) if backs else random.randint(0, 9)
        end = max(end, offset + random.choice([-3, 0, 1, 7, 20])) + random.randint(0, 9)
        commits.append(Commit(now, offset, max(0, end - offset)))
    ends = [random.choice([offset, offset + 1, offset + 30]) for _ in range(random.randint(0, 3))]
    return (
        commits,
        ends,
        max(0, end + random.choice([0, 0, 9]) - offset),
        now + random.choice([0, 500, 9000, 99_000]),
        options,
    )


def test_statuses_are_those_of_the_table() -> None:
    """Every one of them, many times."""
    random, seen = Random(20_261), Counter[BurrowStatus]()
    for _ in range(WINDOWS):
        commits, ends, current, now, options = random_window(random)
        expected = by_the_table(commits, ends, current, now, options)
        assert evaluate(commits, ends, current, now, options) is expected, (commits, ends, current, now, options)
        seen[expected] += 1
    assert set(seen) == set(BurrowStatus) - {BurrowStatus.ERR}
    assert min(seen.values()) > 100, seen


def test_group_is_the_worst_of_its_queues() -> None:
    """WARN stays, what is above it is ERR, and an unknown group is not found."""
    of = BurrowStatus
    assert group_status([]) is of.NOTFOUND
    assert group_status([of.OK, of.OK]) is of.OK
    assert group_status([of.OK, of.WARN]) is of.WARN
    for bad in (of.STOP, of.STALL, of.REWIND):
        assert group_status([of.WARN, bad, of.OK]) is of.ERR


def test_commits_are_what_samples_saw() -> None:
    """An answer is a commit, a sample without one is not, and of two too near to each other the later stays."""
    samples = window(
        5,
        start=0,
        end=[100, 110, 120, None, 140],
        committed=[10, 10, 10, None, 30],
        answered_ms=[0, 10, 10, None, 39.5],
    )
    assert commits_of(samples) == [
        Commit(BEGIN, 10, 90),
        Commit(BEGIN + 10_000, 10, 100),
        Commit(BEGIN + 39_500, 30, 110),
    ]
    near = window(3, times=(0, 1, 40), start=0, end=100, committed=[10, 20, 30], moved_ms=[0, 0.5, 39])
    assert [commit.offset for commit in commits_of(near)] == [20, 30]
    assert [commit.offset for commit in commits_of(near, BurrowOptions(intervals=1))] == [30]


def test_samples_are_judged_by_their_commits() -> None:
    """A flat window is a stall by these rules, a growing one a warning, and one that nobody commits to is stopped."""
    every = [each * 10 for each in range(12)]
    stalled = window(12, start=0, end=500, committed=100, answered_ms=every)
    assert judge(stalled, stalled[-1].time_ms) is BurrowStatus.STALL
    growing = window(12, start=0, end=range(500, 740, 20), committed=range(100, 112), answered_ms=every)
    assert judge(growing, growing[-1].time_ms) is BurrowStatus.WARN
    gone = window(12, start=0, end=500, committed=[*range(100, 104), *[103] * 8], moved_ms=[0, 10, 20, *[30] * 9])
    assert judge(gone, gone[-1].time_ms) is BurrowStatus.STOP
    assert judge(window(3, start=0, end=5), BEGIN) is BurrowStatus.NOTFOUND


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"intervals": 0}, "intervals is 0"),
        ({"minimum_complete": 1.5}, "minimum_complete is 1.5"),
        ({"allowed_lag": -1}, "must be 0 or more"),
    ],
)
def test_options_have_bounds(options: dict[str, int], text: str) -> None:
    """The text names the option."""
    with pytest.raises(ValueError, match=text):
        BurrowOptions(**options)
