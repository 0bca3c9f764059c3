"""About how many samples a report is of, by the files alone."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from broker.runtime.disk import RealDisk
from lag.journal.writer import JournalOrigin, JournalWriter, WriterLimits
from tests.conftest import need_module
from tests.unit.lag.samples import NOW_MS, fleet

HOUR_MS = 3_600_000
DAY = "2026-02-02"
"""Of NOW_MS."""


@pytest.fixture(autouse=True)
def _needed() -> None:
    need_module("pyspark")


def write_journal(folder: Path) -> None:
    """Write some snapshots."""
    writer = JournalWriter(
        RealDisk(), str(folder), JournalOrigin(cluster="c", node="n", epoch=1), WriterLimits(free_bytes_min=0)
    )
    for rows in fleet(5, 60, 10):
        assert writer.write(rows[0][1].time_ms, rows)
    writer.close(NOW_MS + HOUR_MS)


def few(
    monkeypatch: pytest.MonkeyPatch, bound: int, journals: Sequence[str] = (), exported: Sequence[str] = ()
) -> list[bool]:
    """Return whether there are few samples, by a bound: about now, and two days later."""
    from lag.report.options import Input
    from lag.spark.jobs import program

    monkeypatch.setattr(program, "FEW", bound)
    begins = (NOW_MS - HOUR_MS, NOW_MS + 48 * HOUR_MS)
    given = Input(journals=journals, exported=exported)
    return [program.are_few(given, begin, begin + 2 * HOUR_MS) for begin in begins]


def test_journals_count_by_the_files_that_have_something_of_the_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of 600 samples; a file of another program, and a folder that is not there, have none."""
    write_journal(tmp_path / "a")
    (tmp_path / "a" / "raw.0000000009.lag").write_bytes(b"another program's" * 10_000)
    journals = [str(tmp_path / "a"), str(tmp_path / "none")]
    assert few(monkeypatch, 300, journals=journals) == [False, True]
    assert few(monkeypatch, 30_000, journals=journals) == [True, True]


def test_exported_files_count_by_their_days(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By their size alone."""
    folder = tmp_path / "queues" / f"date={DAY}"
    folder.mkdir(parents=True)
    (folder / "n.parquet").write_bytes(bytes(9_000))
    assert few(monkeypatch, 2_999, exported=[str(tmp_path)]) == [False, True]
    assert few(monkeypatch, 3_000, exported=[str(tmp_path)]) == [True, True]


def test_what_is_elsewhere_is_not_few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody asks a bucket for that."""
    assert few(monkeypatch, 1_000_000, exported=["s3a://bucket/lag"]) == [False, False]


def test_jvm_of_a_small_report_here_is_started_quickly(tmp_path: Path) -> None:
    """And no other: not on a cluster, and not where there is much."""
    from lag.report.options import Input, ReportOptions, ReportWindow
    from lag.rules.limits import LagLimits
    from lag.spark.jobs.program import _java_options
    from lag.spark.session import LONG_JVM, QUICK_JVM, SessionOptions, settings_of

    window = ReportWindow(from_ms=NOW_MS, to_ms=NOW_MS + HOUR_MS)
    small = ReportOptions(given=Input(journals=[str(tmp_path)]), window=window, limits=LagLimits())
    large = ReportOptions(given=Input(exported=["s3a://bucket/lag"]), window=window, limits=LagLimits())
    assert [_java_options(small, master) for master in (None, "local[*]", "spark://h:7077")] == [QUICK_JVM] * 2 + [""]
    assert _java_options(large, None) == LONG_JVM
    assert not _java_options(large, "spark://h:7077")
    name = "spark.driver.extraJavaOptions"
    assert settings_of(SessionOptions(java_options=QUICK_JVM))[name] == QUICK_JVM
    assert settings_of(SessionOptions(log_file="/l", java_options=QUICK_JVM))[name].endswith(
        f"/l.properties {QUICK_JVM}"
    )
