"""Objectives: the share of time, by the same reading as the rules; unknown is not kept, and no time is made up."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from broker.runtime.steps import run_now
from lag.history.objective import Kept, Objectives
from lag.history.reading import gather, span_of
from lag.journal.files import Tier
from lag.journal.reader import JournalReader
from lag.journal.tiers import DAY_MS, HOUR_MS
from lag.journal.writer import WriterLimits
from lag.samples import EventKind, LagEvent, QueueSample
from proxy.operate.lookups.lag_history import objectives_steps
from proxy.operate.views.lag_history import ObjectiveKept
from pyddmq.testing.sim_disk import SimDisk
from tests.unit.lag.history.test_trend import BEGIN_MS, EVERY_MS, Rounds, journal
from tests.unit.lag.journal.grounds import FOLDER, gaps_of, writer
from tests.unit.lag.journal.test_tiers import run

PLACE = ("g", "t", 0)
TARGET_MS = 60_000


def late(age_ms: int | None, at: int = 0) -> QueueSample:
    """Return a sample whose oldest unfinished message is so old at its round; None: not known."""
    now_ms = BEGIN_MS + at * EVERY_MS
    return QueueSample(
        time_ms=now_ms, start=0, end=100 + at, committed=50, committed_ms=None if age_ms is None else now_ms - age_ms
    )


def done(sample: QueueSample, at: int, lost: int = 0) -> QueueSample:
    """Return a sample of a queue that finishes 10 messages a round, and lost some."""
    return replace(sample, committed=10 * at, end=10 * at + 5, expired=lost)


def kept(rounds: Rounds) -> Objectives:
    """Return what the journal says over all rounds."""
    return gathered(journal(rounds), len(rounds))


def gathered(disk: SimDisk, rounds: int) -> Objectives:
    """Read a journal of as many rounds."""
    until_ms = BEGIN_MS + rounds * EVERY_MS
    found = Objectives(TARGET_MS, BEGIN_MS, until_ms)
    for _ in gather(JournalReader(disk, FOLDER), span_of(BEGIN_MS, until_ms), found):
        pass
    return found


def test_time_counts_by_the_sample_that_it_begins_with() -> None:
    """Four intervals: two within, one over, one unknown."""
    ages = [0, 59_000, 61_000, None, 0]
    [found] = kept([{PLACE: done(late(age, at), at)} for at, age in enumerate(ages)]).queues().values()
    assert found == Kept(kept_ms=20_000, over_ms=10_000, messages=40, messages_kept=20)
    assert (found.share, found.messages_share) == (2 / 3, 0.5)
    assert (found.unknown_ms(50_000), found.coverage(50_000)) == (20_000, 0.6)


def test_nothing_recorded_is_no_share() -> None:
    """Neither kept nor missed, and no message ended."""
    assert (Kept().share, Kept().messages_share, Kept().coverage(10)) == (None, None, 0.0)
    assert Kept(queues=0).coverage(10) == 0.0
    [found] = kept([{PLACE: late(0)}]).queues().values()
    assert found.share is None


def test_gap_counts_for_nothing() -> None:
    """Nobody knows what was then."""
    rounds: Rounds = [{PLACE: late(0, at)} if at in (0, 1, 20, 21) else {} for at in range(22)]
    [found] = kept(rounds).queues().values()
    assert (found.kept_ms, found.over_ms, found.unknown_ms(220_000)) == (20_000, 0, 200_000)
    assert found.coverage(220_000) == pytest.approx(1 / 11)


def test_lost_messages_are_missed() -> None:
    """The committed offset passes over what retention took: that is not consumption, and is counted over gaps too."""
    lost = [0, 8, 8, 16, 16]
    [found] = kept([{PLACE: done(late(0, at), at, lost[at])} for at in range(5)]).queues().values()
    assert (found.messages, found.messages_kept, found.lost) == (40, 24, 16)
    assert found.messages_share == 0.6
    rounds: Rounds = [{PLACE: done(late(0, at), at, 8 * (at > 9))} if at in (0, 20) else {} for at in range(21)]
    [found] = kept(rounds).queues().values()
    assert (found.messages, found.messages_kept, found.lost) == (8, 0, 8)


def test_lost_messages_are_not_finished_when_a_group_goes_on_behind_them() -> None:
    """A group of a Kafka cluster keeps its committed offset below the first kept message, and then jumps over it."""
    start = replace(late(0), end=500)
    steps = [start, replace(start, start=400, expired=350), replace(start, start=400, expired=350, committed=500)]
    rounds = [{PLACE: replace(each, time_ms=BEGIN_MS + at * EVERY_MS)} for at, each in enumerate(steps)]
    [found] = kept(rounds).queues().values()
    assert (found.messages, found.lost) == (350 + 100, 350)


def test_messages_that_wait_too_long_at_the_end_are_missed() -> None:
    """A group that stopped has finished nothing, and its backlog is not forgotten."""
    [found] = kept([{PLACE: late(99_000, at)} for at in range(3)]).queues().values()
    assert (found.messages, found.messages_kept, found.messages_share) == (52, 0, 0.0)


def test_reset_by_an_operator_finishes_no_message() -> None:
    """The messages that it passes over are in no share."""
    event = LagEvent(time_ms=BEGIN_MS + 15_000, kind=EventKind.RESET, group="g", topic="t")
    other = replace(event, group="other")
    for events, messages in (([event], 10), ([other], 510)):
        ends = [0, 10, 510]
        samples = [replace(late(0, at), committed=end, end=end) for at, end in enumerate(ends)]
        disk = journal([{PLACE: each} for each in samples], {2: events})
        [found] = gathered(disk, 3).queues().values()
        assert found.messages == messages


def test_reset_within_a_round_is_of_the_samples_around_it() -> None:
    """One that comes after the queue was read is written with that sample, and seen in the next one."""
    event = LagEvent(time_ms=BEGIN_MS + 10_001, kind=EventKind.RESET, group="g", topic="t", queue=0)
    for at, messages in ((1, 10), (2, 10), (0, 510)):
        samples = [replace(late(0, number), committed=end, end=end) for number, end in enumerate((0, 10, 510))]
        reset = replace(event, time_ms=event.time_ms if at else BEGIN_MS - 1)
        disk = journal([{PLACE: each} for each in samples], {at: [reset]})
        [found] = gathered(disk, 3).queues().values()
        assert found.messages == messages


@pytest.mark.parametrize(
    ("every_ms", "days"), [(10_000, 0.25), (60_000, 0.25), (120_000, 0.25), (300_000, 0.25), (600_000, 4), (HOUR_MS, 4)]
)
@pytest.mark.parametrize("absent", [False, True])
def test_minutes_and_hours_of_a_node_that_samples_seldom_are_known(every_ms: int, days: float, absent: bool) -> None:
    """`lag.every` may be up to an hour. A queue that is not there for a while, or a node that is not, is not known."""
    disk, begin_ms, length_ms = SimDisk(), BEGIN_MS // DAY_MS * DAY_MS, round(days * DAY_MS)
    made = writer(disk, limits=WriterLimits(interval_ms=every_ms, free_bytes_min=0))
    for time_ms in range(begin_ms, begin_ms + length_ms, every_ms):
        passed_ms = time_ms - begin_ms
        is_away = absent and length_ms // 4 <= passed_ms < length_ms // 2
        # Half of that the node is down, too.
        if not is_away or passed_ms < length_ms * 3 // 8:
            here = QueueSample(time_ms=time_ms, start=0, end=passed_ms, committed=passed_ms)
            made.write(time_ms, [(("other", "t", 0), here), *([] if is_away else [(PLACE, here)])])
    made.close(begin_ms + length_ms)
    run(disk, begin_ms + length_ms + DAY_MS)
    found = Objectives(TARGET_MS, begin_ms, begin_ms + length_ms)
    for _ in gather(JournalReader(disk, FOLDER), span_of(begin_ms, begin_ms + length_ms), found):
        pass
    known_ms = length_ms - every_ms - (length_ms // 4 + every_ms if absent else 0)
    # Between two files of hours, each of a day, nothing says how far apart samples should be.
    tolerance = 0.001 + (every_ms / DAY_MS if days > 3 else 0)
    assert found.queues()[PLACE].coverage(length_ms) == pytest.approx(known_ms / length_ms, abs=tolerance)
    assert len(gaps_of(disk)) == absent


def test_skipped_messages_are_in_no_share() -> None:
    """An operator took them: the group neither finished nor lost them."""
    rounds: Rounds = [{PLACE: replace(done(late(0, at), at), skipped=7 * (at > 0))} for at in range(3)]
    [found] = kept(rounds).queues().values()
    assert (found.messages, found.messages_kept) == (13, 13)


def test_group_weighs_its_queues_by_their_time() -> None:
    """One that was always over halves it."""
    rounds: Rounds = [{PLACE: late(0, at), ("g", "t", 1): late(99_000, at)} for at in range(5)]
    assert kept(rounds).groups()["g"].share == 0.5


@pytest.mark.parametrize("seed", range(20))
def test_time_over_is_that_of_late_samples(seed: int) -> None:
    """On random samples, each up to the next one."""
    rng = random.Random(seed)
    ages = [rng.choice((0, 30_000, 60_000, 60_001, 90_000)) for _ in range(40)]
    [found] = kept([{PLACE: late(age, at)} for at, age in enumerate(ages)]).queues().values()
    over_ms = EVERY_MS * sum(age > TARGET_MS for age in ages[:-1])
    assert (found.over_ms, found.kept_ms) == (over_ms, (len(ages) - 1) * EVERY_MS - over_ms)


def test_minute_counts_by_its_worst_sample() -> None:
    """What is kept as summaries is judged as far as they tell."""
    hours = 3
    rounds: Rounds = [{PLACE: late(61_000 if at % 60 == 3 else 0, at)} for at in range(hours * 360)]
    disk = journal(rounds)
    until_ms = BEGIN_MS + len(rounds) * EVERY_MS
    run(disk, until_ms + 2 * 3_600_000)
    found = Objectives(TARGET_MS, BEGIN_MS, until_ms)
    span = replace(span_of(BEGIN_MS, until_ms), finest=Tier.MINUTE)
    for _ in gather(JournalReader(disk, FOLDER), span, found):
        pass
    [each] = found.queues().values()
    assert each.share is not None
    assert 0.88 < each.share < 0.92, "one minute in ten has a sample that is over"
    assert each.coverage(hours * 3_600_000) > 0.99, "from the first sample to the last"


def test_summary_stands_for_what_was_recorded_in_it() -> None:
    """An outage within an hour that is kept as one row is not known."""
    rounds: Rounds = [{PLACE: late(0, at)} if at not in range(60, 300) else {} for at in range(3 * 360)]
    disk = journal(rounds, silent=range(60, 300))
    until_ms = BEGIN_MS + len(rounds) * EVERY_MS
    run(disk, until_ms + 30 * 86_400_000)
    found = Objectives(TARGET_MS, BEGIN_MS, until_ms)
    span = replace(span_of(BEGIN_MS, until_ms), finest=Tier.HOUR)
    for _ in gather(JournalReader(disk, FOLDER), span, found):
        pass
    [each] = found.queues().values()
    assert each.coverage(until_ms - BEGIN_MS) == pytest.approx(1 - 240 / 1080, abs=0.01)


def burning(goal: float | None, rounds: Rounds, **named: str) -> ObjectiveKept:
    """Return how a goal is kept over 400 s, of which the last 300 s are a window of their own."""
    span = span_of(BEGIN_MS, BEGIN_MS + 400_000)
    [found] = run_now(objectives_steps(journal(rounds), FOLDER, span, TARGET_MS, at_least=goal, **named)).kept
    return found


def test_burn_rates_are_the_missed_share_over_the_budget() -> None:
    """Of 390 messages 92 are late and 8 lost, of the last 290 the same: 0.1 may be."""
    late_at = range(20, 30)
    rounds: Rounds = [
        {PLACE: done(late(61_000 if at in late_at else 0, at), at, lost=8 * (at > 25))} for at in range(40)
    ]
    found = burning(0.9, rounds)
    assert (found.messages, found.lost, found.budget_left) == (390, 8, -1.564)
    assert [(each.window_ms, each.messages, each.missed, each.burn_rate) for each in found.burn_rates] == [
        (400_000, 390, 100, 2.564),
        (300_000, 290, 100, 3.448),
    ]
    assert [each.coverage for each in found.burn_rates] == [0.975, pytest.approx(290 / 300)]
    assert burning(0.9, rounds, group="g").burn_rates == found.burn_rates
    assert (burning(1.0, rounds).budget_left, burning(1.0, rounds).burn_rates[0].burn_rate) == (None, None)
    assert (burning(None, rounds).budget_left, burning(None, rounds).burn_rates) == (None, [])


def test_budget_of_which_nothing_is_used_is_left() -> None:
    """And a window in which nothing was recorded has no rate."""
    found = burning(0.999, [{PLACE: done(late(0, at), at)} for at in range(9)])
    assert found.budget_left == 1.0
    assert [(each.burn_rate, each.coverage) for each in found.burn_rates] == [(0.0, 0.2), (None, 0.0)]
