"""Coarser files: what is kept is what the samples say, once, whatever stops in between."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from itertools import pairwise
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lag.blocks import FileHead, FileKind, GapKind, encode_head
from lag.journal.columns import Key
from lag.journal.files import JournalFile, Tier, live_files, parse
from lag.journal.reader import EventRow, JournalQuery, QueueRow, ScheduledSummaryRow, SummaryRow
from lag.journal.summaries import QueueSummary
from lag.journal.tiers import DAY_MS, HOUR_MS, TierLimits, Tiers, TierWork
from lag.samples import EventKind, LagEvent, QueueSample, ScheduledSample
from pyddmq.testing.manual_time import ManualClock, ManualScheduler
from pyddmq.testing.sim_disk import PowerCut, SimDisk
from pyddmq.testing.sim_syncs import SimSyncs
from tests.unit.lag.journal.grounds import FOLDER, Rows, content, gaps_of, names, put, read, rows_of, writer
from tests.unit.lag.samples import NOW_MS

DAY = NOW_MS // DAY_MS * DAY_MS
TIERS = TierLimits(free_bytes_min=0)
FOR_EVER = replace(TIERS, keep_ms=dict.fromkeys(Tier, 10_000 * DAY_MS))


def run(disk: SimDisk, now_ms: int, *, limits: TierLimits = TIERS, current: str | None = None) -> Tiers:
    """Make a round, in one go."""
    tiers = Tiers(disk, FOLDER, limits)
    for what in tiers.round(now_ms, current):
        if isinstance(what, str):
            disk.sync_folder(what)
        elif what is not None:
            what.sync()
    return tiers


def journal(disk: SimDisk, hours: int, *, seed: int = 1, queues: int = 3, every_ms: int = 400_000) -> Rows:
    """Write samples of so many hours from midnight on, in two starts; return them."""
    random = Random(seed)
    written: Rows = []
    ends = dict.fromkeys(range(queues), 100)
    journal = writer(disk, epoch=1)
    for number in range(hours * HOUR_MS // every_ms):
        if number == hours * HOUR_MS // every_ms // 2 + 1:
            journal = writer(disk, epoch=2)
        time_ms = DAY + number * every_ms + random.randrange(1000)
        rows: Rows = []
        for queue in range(queues):
            ends[queue] += random.randrange(3)
            lag = random.choice([None, 0, 0, 5, 9])
            sample = QueueSample(
                time_ms=time_ms + queue // 2,
                start=random.choice([None, 0, 3]),
                end=ends[queue],
                committed=None if lag is None else ends[queue] - lag,
                committed_ms=time_ms - 1000 * lag if lag else None,
                in_flight=random.randrange(4),
                limited=random.random() < 0.3,
                paused=random.random() < 0.3,
                retrying=random.randrange(2),
            )
            rows.append((("g", "t", queue), sample))
        if number % 7 == 0:
            journal.note(LagEvent(time_ms=time_ms, kind=EventKind.RELOAD, detail=f"{number}"))
        assert journal.write(time_ms, rows, [ScheduledSample(time_ms=time_ms, kind="timer", pending=number)])
        written += rows
    return written


def lag_of(sample: QueueSample) -> int | None:
    """Return a sample's lag, null: unknown."""
    if sample.end is None or sample.committed is None:
        return None
    return max(sample.end - max(sample.committed, sample.start or 0), 0)


def age_of(sample: QueueSample) -> int | None:
    """Return a sample's age, null: unknown."""
    lag = lag_of(sample)
    if not lag:
        return lag
    return None if sample.committed_ms is None else max(sample.time_ms - sample.committed_ms, 0)


def expected(samples: list[QueueSample]) -> QueueSummary:
    """Return what is to be kept of samples in order, the plain way."""
    lags = [lag for each in samples if (lag := lag_of(each)) is not None]
    ages = [age for each in samples if (age := age_of(each)) is not None]
    commits = [each.committed for each in samples if each.committed is not None]
    return QueueSummary(
        last=samples[-1],
        first_ms=samples[0].time_ms,
        samples=len(samples),
        unread=sum(each.start is None for each in samples),
        lag_known=len(lags),
        lag_sum=sum(lags),
        lag_min=min(lags, default=None),
        lag_max=max(lags, default=None),
        age_known=len(ages),
        age_sum_ms=sum(ages),
        age_min_ms=min(ages, default=None),
        age_max_ms=max(ages, default=None),
        end_first=next((each.end for each in samples if each.end is not None), None),
        committed_first=commits[0] if commits else None,
        committed_last=commits[-1] if commits else None,
        rewinds=sum(after < before for before, after in pairwise(commits)),
        in_flight_max=max(each.in_flight for each in samples),
        waiting_max=max(each.waiting for each in samples),
        retrying_max=max(each.retrying for each in samples),
        limited_samples=sum(each.limited for each in samples),
        paused_samples=sum(each.paused for each in samples),
    )


def summaries(disk: SimDisk, finest: Tier) -> dict[Key, list[QueueSummary]]:
    """Return the summaries by queue, in order."""
    found = defaultdict(list)
    for each in read(disk, JournalQuery(finest=finest)):
        if isinstance(each, SummaryRow):
            assert each.tier is finest
            found["g", "t", each.key.queue].append(each.summary)
    return found


def by_width(rows: Rows, width_ms: int, starts: list[int]) -> dict[Key, list[QueueSummary]]:
    """Return the summaries that rows of starts (their first moments) should give."""
    groups: dict[tuple[Key, int, int], list[QueueSample]] = defaultdict(list)
    for key, sample in rows:
        start = sum(sample.time_ms >= each for each in starts)
        groups[key, start, sample.time_ms // width_ms].append(sample)
    found = defaultdict(list)
    for (key, _, _), samples in groups.items():
        found[key].append(expected(samples))
    return found


def test_minutes_and_hours_say_what_the_samples_say() -> None:
    """Against the plain sums, over two starts of a node; hours are made of minutes."""
    disk = SimDisk()
    rows = journal(disk, 5, every_ms=20_000)
    second = min(each.sample.time_ms for each in read(disk) if isinstance(each, QueueRow) and each.epoch == 2)
    tiers = run(disk, DAY + DAY_MS, limits=FOR_EVER)
    assert (tiers.trouble, tiers.made) == (None, 6)
    assert summaries(disk, Tier.MINUTE) == by_width(rows, 60_000, [second])
    assert summaries(disk, Tier.HOUR) == by_width(rows, HOUR_MS, [second])
    assert rows_of(disk) == rows


def test_events_waiting_and_gaps_are_kept() -> None:
    """All events; of what waits the most; what is missing by its reason and times."""
    disk = SimDisk()
    journal(disk, 3)
    before = [each.event for each in read(disk) if isinstance(each, EventRow)]
    data = bytearray(content(disk, "raw.0000000002.lag"))
    data[-3] ^= 1
    put(disk, "raw.0000000002.lag", bytes(data))
    missing = [gap for gap in gaps_of(disk) if gap.kind is GapKind.DAMAGED]
    assert len(missing) == 1
    run(disk, DAY + DAY_MS, limits=FOR_EVER)
    found = read(disk, JournalQuery(finest=Tier.HOUR))
    assert [each.event for each in found if isinstance(each, EventRow)] == before
    assert [gap.reason for gap in gaps_of(disk, JournalQuery(finest=Tier.HOUR)) if gap.kind is GapKind.DAMAGED] == [
        missing[0].reason
    ]
    waiting = [each.summary for each in found if isinstance(each, ScheduledSummaryRow)]
    assert [each.pending_max for each in waiting] == [each.last.pending for each in waiting]
    assert sum(each.samples for each in waiting) == 26


def test_time_that_is_not_over_is_left_alone() -> None:
    """Nor is the file that grows taken."""
    disk = SimDisk()
    journal(disk, 3)
    last = max(names(disk))
    tiers = run(disk, DAY + 3 * HOUR_MS - 1, limits=FOR_EVER, current=f"{FOLDER}/{last}")
    assert [name for name in names(disk) if name.startswith("minute")] == [
        "minute.0000000001-0000000001.lag",
        "minute.0000000002-0000000003.lag",
    ]
    assert tiers.made == 2
    assert run(disk, DAY + 3 * HOUR_MS, limits=FOR_EVER).made == 1
    assert run(disk, DAY + 3 * HOUR_MS, limits=FOR_EVER).made == 0


def test_kill_at_any_change_counts_every_sample_once() -> None:
    """While coarser files are made and finer ones go; and the next start ends the work."""
    stop = 1
    while True:
        disk = SimDisk()
        rows = journal(disk, 3, queues=2, every_ms=600_000)
        late = DAY + 40 * DAY_MS
        disk.stop_after(stop)
        try:
            run(disk, late)
        except PowerCut:
            disk.kill()
            assert samples_in(disk) == len(rows)
            assert run(disk, late).trouble is None
            assert samples_in(disk) == len(rows)
            assert [name[:4] for name in names(disk)] == ["hour"]
            stop += 2
        else:
            assert stop > 20
            return


def samples_in(disk: SimDisk) -> int:
    """Return how many samples of queues a reader counts."""
    return sum(
        each.summary.samples if isinstance(each, SummaryRow) else 1
        for each in read(disk)
        if isinstance(each, SummaryRow | QueueRow)
    )


def test_power_loss_at_any_change_counts_every_sample_once() -> None:
    """What a file replaces goes when that is durable."""
    for stop in range(1, 60, 5):
        for mode in ("none", "all"):
            disk = SimDisk()
            rows = journal(disk, 3, queues=2, every_ms=600_000)
            for name in names(disk):
                disk.open(f"{FOLDER}/{name}").sync()
            disk.sync_folder(FOLDER)
            disk.stop_after(stop)
            try:
                run(disk, DAY + 40 * DAY_MS)
            except PowerCut:
                disk.crash(Random(stop), modes=[mode])
                assert samples_in(disk) == len(rows)


def test_what_is_old_goes_when_it_is_contained() -> None:
    """Raw after two days, minutes after 35, hours after 400."""
    disk = SimDisk()
    journal(disk, 3)
    kinds = []
    for days in (1, 3, 36, 402):
        tiers = run(disk, DAY + days * DAY_MS)
        assert tiers.lost == 0
        kinds.append(sorted({name.partition(".")[0] for name in names(disk)}))
    assert kinds == [["hour", "minute", "raw"], ["hour", "minute"], ["hour"], []]


def test_minutes_are_made_of_samples_that_are_too_much() -> None:
    """Else a node whose hour has more than the bound would never have any."""
    disk = SimDisk()
    rows = journal(disk, 3)
    tiers = run(disk, DAY + 4 * HOUR_MS, limits=replace(FOR_EVER, bytes_max={**FOR_EVER.bytes_max, Tier.RAW: 10}))
    assert (tiers.trouble, tiers.lost) == (None, 0)
    assert {name.partition(".")[0] for name in names(disk)} == {"minute"}
    assert samples_in(disk) == len(rows)


@pytest.mark.parametrize("limit", ["bytes", "files"])
def test_what_is_too_much_goes_the_oldest_first(limit: str) -> None:
    """Also such as nothing coarser contains yet, and that is counted."""
    disk = SimDisk()
    rows = journal(disk, 6)
    size = sum(len(content(disk, name)) for name in names(disk))
    # Without room for summaries.
    bound = replace(FOR_EVER, bytes_max={**FOR_EVER.bytes_max, Tier.RAW: size // 2}, free_bytes_min=1 << 63)
    if limit == "files":
        bound = replace(FOR_EVER, files_max=3, free_bytes_min=1 << 63)
    tiers = run(disk, DAY, limits=bound)
    assert tiers.lost == tiers.deleted > 0
    left = rows_of(disk)
    assert left
    assert rows[-len(left) :] == left


def test_full_disk_leaves_things_as_they_are() -> None:
    """Nothing half made stays; the next round goes on."""
    disk = SimDisk()
    rows = journal(disk, 4)
    before = names(disk)
    disk.fail("write", path_part="minute", skip=2)
    assert run(disk, DAY + DAY_MS, limits=FOR_EVER).trouble is not None
    assert names(disk) == before
    assert run(disk, DAY + DAY_MS, limits=replace(FOR_EVER, free_bytes_min=1 << 63)).made == 0
    assert run(disk, DAY + DAY_MS, limits=FOR_EVER).trouble is None
    assert rows_of(disk) == rows


def test_work_goes_on_beside_the_loop() -> None:
    """In slices, with syncs that nobody waits for; one that fails ends the round, and the next goes on."""
    disk = SimDisk()
    rows = journal(disk, 4)
    clock = ManualClock(wall_ms=DAY + DAY_MS)
    scheduler = ManualScheduler(clock)
    tiers = Tiers(disk, FOLDER, FOR_EVER)
    work = TierWork(tiers, clock, disk, SimSyncs(disk, scheduler, Random(2)))
    disk.fail("sync", path_part="minute")
    troubles = []
    for _ in range(2):
        work.begin(None)
        slices = 0
        while work.step(0.0):
            slices += 1
            scheduler.advance(0.001)
        assert slices > 5
        troubles.append(tiers.trouble)
    assert [bool(each) for each in troubles] == [True, False]
    assert not work.is_under_way
    assert samples_in(disk) == len(rows)
    assert summaries(disk, Tier.HOUR)


def test_file_that_begins_during_a_round_is_left_alone() -> None:
    """Minutes made of half an hour would count for all of it once its samples are deleted."""
    disk = SimDisk()
    journal = writer(disk)
    before = DAY + HOUR_MS - 5_000
    assert journal.write(before, [(("g", "t", 0), QueueSample(time_ms=before, end=1, committed=1))])
    tiers = Tiers(disk, FOLDER, TIERS)
    steps = tiers.round(before, journal.current)
    next(steps)
    times = [DAY + HOUR_MS + 5_000 + number * 600_000 for number in range(6)]
    assert journal.write(times[0], [(("g", "t", 0), QueueSample(time_ms=times[0], end=2, committed=2))])
    for _ in steps:
        pass
    for time_ms in times[1:]:
        assert journal.write(time_ms, [(("g", "t", 0), QueueSample(time_ms=time_ms, end=2, committed=2))])
    journal.close(times[-1])
    run(disk, DAY + 10 * DAY_MS, limits=replace(FOR_EVER, keep_ms={**FOR_EVER.keep_ms, Tier.RAW: DAY_MS}))
    assert not [name for name in names(disk) if name.startswith("raw")]
    assert len(summaries(disk, Tier.MINUTE)["g", "t", 0]) == 1 + len(times)


def test_round_that_is_abandoned_is_made_again() -> None:
    """At a stop, wherever it is."""
    disk = SimDisk()
    rows = journal(disk, 2)
    work = TierWork(Tiers(disk, FOLDER, FOR_EVER), ManualClock(wall_ms=DAY + DAY_MS), disk)
    work.begin(None)
    for _ in range(12):
        work.step(0.0)
    assert work.is_under_way
    work.abandon()
    assert not work.step()
    work.begin(None)
    while work.step():
        pass
    assert rows_of(disk) == rows
    assert not [name for name in names(disk) if name.endswith(".new")]


class LookedAt(JournalFile):
    """A file whose name is looked at, counted."""

    looks = 0

    @property
    def first(self) -> int:
        """The first raw file."""
        LookedAt.looks += 1
        return self[1]


YEAR = [
    *(JournalFile(Tier.RAW, hour, hour) for hour in range(400 * 24 - 47, 400 * 24 + 1)),
    *(JournalFile(Tier.MINUTE, hour, hour) for hour in range(365 * 24 + 1, 400 * 24 + 1)),
    *(JournalFile(Tier.HOUR, day * 24 + 1, day * 24 + 24) for day in range(400)),
]
"""What a node has after 400 days."""


@pytest.mark.parametrize("finest", Tier)
def test_files_of_a_year_are_compared_with_few_others_each(finest: Tier) -> None:
    """A node lists them in one step."""
    LookedAt.looks = 0
    assert live_files([LookedAt(*each) for each in YEAR], finest)
    assert LookedAt.looks <= 20 * len(YEAR)


def test_no_step_of_a_round_over_a_year_compares_all_files_with_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """The loop does other things after each step."""
    disk = SimDisk()
    for each in YEAR:
        begin_ms = DAY + each.first * HOUR_MS
        head = FileHead(
            kind=FileKind(each.tier), cluster="c", node="n1", epoch=1, sequence=0, first_ms=begin_ms,
            last_ms=begin_ms + (each.last - each.first + 1) * HOUR_MS - 1,
        )  # fmt: skip
        put(disk, each.name, encode_head(head))
    monkeypatch.setattr("lag.journal.tiers.parse", lambda name: LookedAt(*parse(name) or ()))
    tiers, looks = Tiers(disk, FOLDER, FOR_EVER), []
    LookedAt.looks = 0
    for _ in tiers.round(DAY + 401 * DAY_MS, None):
        looks.append(LookedAt.looks)
        LookedAt.looks = 0
    assert (tiers.trouble, tiers.made, tiers.deleted) == (None, 0, 0)
    assert max(looks) <= 20 * len(YEAR)


@given(st.data())
def test_each_raw_file_counts_once_whatever_is_there(data: st.DataObject) -> None:
    """Of any tiling by minutes and hours, with any files gone that something coarser contains."""
    count = data.draw(st.integers(1, 12))
    cuts = data.draw(st.sets(st.integers(2, count), max_size=5)) if count > 1 else set()
    edges = [1, *sorted(cuts), count + 1]
    minutes = [JournalFile(Tier.MINUTE, a, b - 1) for a, b in pairwise(edges)]
    groups = data.draw(st.integers(0, len(minutes)))
    hours = [JournalFile(Tier.HOUR, minutes[0].first, minutes[groups - 1].last)] if groups else []
    kept_minutes = data.draw(st.lists(st.sampled_from(minutes), unique=True))
    kept = [each for each in minutes if each in kept_minutes or not any(h.last >= each.last for h in hours)]
    raw = [JournalFile(Tier.RAW, n, n) for n in range(1, count + 1)]
    files = kept + hours + [each for each in raw if data.draw(st.booleans()) or not any(
        above.first <= each.first <= above.last for above in kept + hours)]  # fmt: skip
    finest = data.draw(st.sampled_from(Tier))
    live = live_files(data.draw(st.permutations(files)), finest)
    covered = [number for file in live for number in range(file.first, file.last + 1)]
    assert covered == list(range(1, count + 1))
    if finest is Tier.RAW and set(raw) <= set(files):
        assert live == raw


@pytest.mark.parametrize("file", [JournalFile(Tier.RAW, 7, 7), JournalFile(Tier.HOUR, 3, 40)])
def test_names_say_what_a_file_is(file: JournalFile) -> None:
    """And back; any other name is none."""
    assert parse(file.name) == file


@pytest.mark.parametrize("name", ["raw.1.lag", "raw.0000000001-0000000002.lag", "hour.0000000002-0000000001.lag", "x"])
def test_other_names_are_none(name: str) -> None:
    """Nothing is guessed."""
    assert parse(name) is None
