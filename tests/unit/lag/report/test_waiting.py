"""What waits for its own time is in the report: by node and level, with how late it was."""

from __future__ import annotations

import pytest

from lag.journal.files import Tier
from lag.journal.tiers import DAY_MS, TierLimits, Tiers
from lag.journal.writer import JournalOrigin, JournalWriter, WriterLimits
from lag.report.page.markdown import render_markdown
from lag.samples import ScheduledSample
from pyddmq.testing.sim_disk import SimDisk
from tests.unit.lag.report.test_local import EVERY_MS, made, sample
from tests.unit.lag.samples import NOW_MS


def waited(disk: SimDisk, folder: str = "j", cluster: str = "c") -> None:
    """Write ten rounds in which a delay level was late, a transaction is undecided, and timers are in time."""
    limits = WriterLimits(free_bytes_min=0)
    journal = JournalWriter(disk, folder, JournalOrigin(cluster=cluster, node="n", epoch=1), limits)
    for number in range(10):
        now = NOW_MS + number * EVERY_MS
        is_late = number == 4
        rows = [
            ScheduledSample(
                time_ms=now, kind="delay", level=3, pending=9, overdue=7 * is_late,
                oldest_due_ms=now - 90_000 if is_late else None,
            ),
            ScheduledSample(time_ms=now, kind="half", pending=1, oldest_ms=NOW_MS - 86_400_000),
            ScheduledSample(time_ms=now, kind="timer", pending=0),
        ]  # fmt: skip
        journal.begin(now)
        journal.add([(("g", "t", 0), sample(now))])
        assert journal.end(rows)
    journal.close(now)


def test_what_waits_is_judged_and_its_peaks_are_kept() -> None:
    """The worst first; where nothing waits there is no row."""
    disk = SimDisk()
    waited(disk)
    report = made(disk, "j", rounds=10)
    assert [(each.kind, each.status) for each in report.waiting] == [("half", "UNDECIDED"), ("delay", "IN_TIME")]
    half, delay = report.waiting
    assert half.undecided_since_ms == NOW_MS - 86_400_000
    assert (delay.scheduled, delay.overdue, delay.peak_overdue, delay.peak_late_seconds) == (9, 0, 7, 90.0)
    assert "**IN\\_TIME** delay level 3 of node n: 9 scheduled, 0 overdue" in render_markdown(report)


def test_page_has_a_table_of_them() -> None:
    """Only where something waits."""
    pytest.importorskip("jinja2")
    pytest.importorskip("matplotlib")
    from lag.report.page.page import render_html

    disk = SimDisk()
    waited(disk)
    text = render_html(made(disk, "j", rounds=10))
    assert "<h2>Waiting messages</h2>" in text
    assert "delay level 3 of node n" in text


def test_peaks_are_those_of_all_samples_where_only_minutes_are_left() -> None:
    """Also of what waits no longer at the end of its minute."""
    disk = SimDisk()
    waited(disk)
    keep = {Tier.RAW: 0, Tier.MINUTE: 400 * DAY_MS, Tier.HOUR: 400 * DAY_MS}
    for _ in Tiers(disk, "j", TierLimits(keep_ms=keep, free_bytes_min=0)).round(NOW_MS + DAY_MS, None):
        pass
    assert not [name for name in disk.list("j") if name.startswith("raw")]
    [delay] = [each for each in made(disk, "j", rounds=10).waiting if each.kind == "delay"]
    assert (delay.overdue, delay.peak_overdue, delay.peak_late_seconds) == (0, 7, 90.0)


def test_nodes_of_one_name_in_two_clusters_are_kept_apart() -> None:
    """None hides what waits in the other."""
    disk = SimDisk()
    waited(disk, "one", "c")
    waited(disk, "two", "d")
    assert [each.kind for each in made(disk, "one", "two", rounds=10).waiting] == ["half", "half", "delay", "delay"]
