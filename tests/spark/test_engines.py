"""Spark and the engine without it make the same report of journals and of exported files, to every digit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

from broker.runtime.disk import RealDisk
from lag.export.export import export
from lag.export.place import ExportPlace
from lag.journal.writer import JournalOrigin, JournalWriter, WriterLimits
from lag.report.data import LagReportData, as_plain
from lag.report.engine.local import make_locally, reduce_locally
from lag.report.options import Figures, Input, ReportOptions, ReportWindow
from lag.rules.limits import LagLimits
from lag.samples import EventKind, LagEvent, QueueSample
from tests.independent.comparison import differences
from tests.independent.test_reports import options_of as report_options
from tests.independent.windows import window
from tests.spark.test_jobs_report import EVERY_MS, START_MS
from tests.spark.test_report_gaps import stepped

ROUNDS = 120
Change = Callable[[int], Sequence[LagEvent]]


def options_of(folders: Sequence[str], rounds: int, **given: Any) -> ReportOptions:
    """Return options of a window over the second half of some rounds, with the first half before it."""
    half = rounds // 2 * EVERY_MS
    window = ReportWindow(from_ms=START_MS + half, to_ms=START_MS + 2 * half)
    return ReportOptions(given=Input(journals=folders, **given), window=window, limits=LagLimits(), made_ms=START_MS)


def both(spark: Any, options: ReportOptions) -> LagReportData:
    """Make a report by both engines, hold that they are equal, and return it."""
    from lag.spark.jobs.report import make_report

    of_spark, of_python = make_report(spark, options), make_locally(RealDisk(read_only=True), options)
    plain, wanted = as_plain(of_python), as_plain(of_spark)
    for mine, other in zip(plain["groups"], wanted["groups"], strict=True):
        for name in other:
            assert mine[name] == other[name], (mine["group"], name)
    assert plain == wanted
    return of_python


class Life:
    """One queue's life at random: traffic, lag, losses, being made anew, reads that fail, and pauses."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.start, self.end, self.expired = 0, random.randrange(5_000), 0
        self.committed = self.end - random.randrange(40)
        self.rate, self.speed = random.choice((0, 3, 50)), random.choice((0, 2, 60))
        self.moved_ms: int | None = None
        self.skipped = 0

    def sample(self, now: int) -> QueueSample:
        """Go on by one round."""
        random = self.random
        if random.random() < 0.02:
            self.rate, self.speed = random.choice((0, 3, 50, 400)), random.choice((0, 2, 60, 500))
        self.end += random.randrange(self.rate + 1)
        before = self.committed
        self.committed = min(self.end, self.committed + random.randrange(self.speed + 1))
        if random.random() < 0.01:
            self.start = min(self.end, self.start + random.randrange(3_000))
            self.expired += max(0, self.start - self.committed)
            self.committed = max(self.committed, self.start)
        if random.random() < 0.004:
            self.start = self.end = self.committed = 0
        if self.end > self.committed and random.random() < 0.01:
            self.committed, self.skipped = self.committed + 1, self.skipped + 1
        if self.committed != before:
            self.moved_ms = now
        lag = self.end - self.committed
        if random.random() < 0.02:
            return QueueSample(time_ms=now)
        return QueueSample(
            time_ms=now, start=self.start, end=self.end, committed=self.committed, expired=self.expired,
            started=self.committed + min(lag, 5), in_flight=min(lag, random.randrange(3)),
            start_ms=START_MS - 90_000_000,
            committed_ms=None if not lag or random.random() < 0.2 else now - lag * random.randrange(1, 900),
            end_ms=now - 20, moved_ms=self.moved_ms, answered_ms=self.moved_ms, asked_ms=self.moved_ms,
            holders=random.randrange(2), skipped=self.skipped, paused=random.random() < 0.01,
            limited=random.random() < 0.05,
        )  # fmt: skip


def wild(folder: Path, node: str, seed: int, rounds: int = ROUNDS, topics: int = 3) -> None:
    """Write a journal of random lives, with resets, a restart, a topic that is made anew and groups that leave."""
    random = Random(seed)
    names = [(group, f"t{topic}", queue) for group in "ab" for topic in range(topics) for queue in range(4)]
    lives = {name: Life(random) for name in names}
    epoch, journal = 1, JournalWriter(RealDisk(), str(folder), JournalOrigin(cluster="c", node=node, epoch=1), _LIMITS)
    for number in range(rounds):
        now = START_MS + number * EVERY_MS
        if number == rounds * 2 // 3:
            journal.note(LagEvent(time_ms=now - 9_000, kind=EventKind.STOP, detail="the node was stopped"))
            journal.close(now - 9_000)
            epoch += 1
            journal = JournalWriter(
                RealDisk(), str(folder), JournalOrigin(cluster="c", node=node, epoch=epoch), _LIMITS
            )
            journal.note(LagEvent(time_ms=now - 5, kind=EventKind.START, detail="the node serves"))
        if random.random() < 0.03:
            group, topic, queue = random.choice(names)
            lives[group, topic, queue].committed = random.randrange(lives[group, topic, queue].end + 1)
            journal.note(LagEvent(time_ms=now - 1, kind=EventKind.RESET, group=group, topic=topic, queue=queue))
        if number == rounds - 20:
            for name in [each for each in names if each[1] == "t0"]:
                names.remove(name)
                journal.note(
                    LagEvent(time_ms=now - 2, kind=EventKind.LEFT, group=name[0], topic=name[1], queue=name[2])
                )
        if rounds // 4 < number < rounds // 4 + 9:
            continue
        assert journal.write(now, [(name, lives[name].sample(now + place % 4)) for place, name in enumerate(names)])
    journal.close(START_MS + rounds * EVERY_MS)


_LIMITS = WriterLimits(free_bytes_min=0)


def ledger_rows(incidents: Sequence[Figures]) -> list[tuple[Any, ...]]:
    """Return what the ledger takes of incidents of queues, in order."""
    names = (
        "cluster",
        "node",
        "group",
        "topic",
        "queue",
        "from_ms",
        "last_ms",
        "until_ms",
        "severity",
        "cause",
        "lost",
    )
    return sorted([(*(row[name] for name in names), row["held"]) for row in incidents], key=lambda row: row[:6])


def test_both_say_what_the_documentation_says(spark: Any, shipped: Any, tmp_path: Path) -> None:
    """A window that is evaluated a second time, from the documentation alone."""
    drawn = window(4)
    assert "\n".join(differences(drawn, both(spark, report_options(drawn, tmp_path)))) == ""


def test_random_journals_are_the_same_by_both(spark: Any, shipped: Any, tmp_path: Path) -> None:
    """Three nodes, with resets, losses, a restart, queues that are made anew, cannot be read or leave.

    One died in the middle of a snapshot, beside a file of another program; the clock of another was set back. Two of
    them are exported, then, and one of the files is damaged.
    """
    for number, node in enumerate(("n1", "n2")):
        wild(tmp_path / node, node, 5 + number)
    stepped(tmp_path / "n3", "n3", -120_000, ROUNDS * 2 // 3)
    *_, newest = sorted((tmp_path / "n2").iterdir())
    newest.write_bytes(newest.read_bytes()[:-20])
    (tmp_path / "n2" / "raw.0000000009.lag").write_bytes(b"another program's" * 50)
    options = options_of([str(tmp_path / node) for node in ("n1", "n2", "n3")], ROUNDS)
    report = both(spark, options)
    assert report.samples > 2_000
    assert any("(torn)" in gap for gap in report.gaps)
    assert any("(clock)" in gap for gap in report.gaps)
    assert any(part.lost for part in report.groups)
    assert any(each.cause for part in report.groups for each in part.incidents)
    piece = replace(options.window, counted_ms=options.window.from_ms + 20 * EVERY_MS)
    of_piece = replace(options, window=piece, compared=False)
    rows = reduce_locally(RealDisk(read_only=True), of_piece).incidents
    from lag.spark.jobs.report import reduce_by_spark

    assert ledger_rows(reduce_by_spark(spark, of_piece).incidents) == ledger_rows(rows)
    assert {len(row["held"]) for row in rows} > {1}
    place = ExportPlace(str(tmp_path / "exported"))
    for node in ("n1", "n2"):
        export(RealDisk(read_only=True), str(tmp_path / node), place)
    file = next(each for each in sorted(place.names("queues")) if "/n2." in each)
    (tmp_path / "exported" / file).write_bytes(b"not Parquet")
    given = Input(exported=[place.url], groups=frozenset({"a"}))
    report = both(spark, replace(options, given=given, compared=False))
    assert report.samples > 500
    assert [gap for gap in report.gaps if gap.endswith("cannot be read (damaged)")]
