"""Batches of `pyddmq_lag`, without a session: the rows that the journal's own reader gives, whatever is asked for."""

from __future__ import annotations

from typing import Any

import pytest

from broker.runtime.disk import RealDisk
from lag.journal.files import Tier
from lag.journal.reader import JournalQuery, JournalReader, QueueRow, SummaryRow
from lag.journal.tiers import TierLimits, Tiers
from lag.journal.writer import JournalOrigin, JournalWriter, WriterLimits
from lag.samples import SAMPLE_FIELDS
from tests.conftest import need_module
from tests.unit.lag.samples import NOW_MS, fleet

SNAPSHOTS = 40
HOUR_MS = 3_600_000


@pytest.fixture(scope="module")
def journal(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Write a journal of queues that move, of one that comes and one that goes, over two starts, with its minutes."""
    need_module("pyarrow", "pip install 'pyddmq[files]'")
    folder = str(tmp_path_factory.mktemp("journal"))
    snapshots = fleet(5, 60, SNAPSHOTS)
    for epoch, some in ((1, snapshots[:25]), (2, snapshots[25:])):
        writer = JournalWriter(
            RealDisk(), folder, JournalOrigin(cluster="c", node="n", epoch=epoch), WriterLimits(free_bytes_min=0)
        )
        for number, rows in enumerate(some):
            there = rows[1:] if number % 5 == 1 else rows[:-1] if number % 7 == 3 else rows
            assert writer.write(rows[0][1].time_ms, there)
        writer.close(some[-1][0][1].time_ms + 1)
    for _ in Tiers(RealDisk(), folder, TierLimits()).round(NOW_MS + 2 * HOUR_MS, None):
        pass
    return folder


def by_source(folder: str, names: list[str], **options: str) -> list[dict[str, Any]]:
    """Return the rows of all partitions, some columns."""
    pytest.importorskip("pyspark")
    import pyarrow as pa

    from lag.spark.sources.journal import JournalRows
    from lag.spark.sources.journal_rows import FIELDS

    source = JournalRows({"path": folder, **options}, "samples", pa.schema([(name, FIELDS[name]) for name in names]))
    return [row for part in source.partitions() for batch in source.read(part) for row in batch.to_pylist()]


def expected(folder: str, wanted: JournalQuery) -> list[dict[str, Any]]:
    """Return what the journal's reader has of it."""
    found = []
    for row in JournalReader(RealDisk(read_only=True), folder).read(wanted):
        if isinstance(row, QueueRow | SummaryRow):
            is_raw = isinstance(row, QueueRow)
            sample = row.sample if isinstance(row, QueueRow) else row.summary.last
            names = ("cluster", "node", "group", "topic", "queue")
            found.append(
                {name: getattr(row.key, name) for name in names}
                | {"epoch": f"{row.epoch:016x}", "sequence": row.sequence}
                | {name: getattr(sample, name) for name in SAMPLE_FIELDS}
                | {
                    "tier": "raw" if is_raw else "minute",
                    "row_samples": 1 if isinstance(row, QueueRow) else row.summary.samples,
                    "row_lag_max": None if isinstance(row, QueueRow) else row.summary.lag_max,
                    "row_age_max_ms": None if isinstance(row, QueueRow) else row.summary.age_max_ms,
                }
            )
    return found


CASES = {
    "all": ({}, JournalQuery()),
    "minutes": ({"finest": "minute"}, JournalQuery(finest=Tier.MINUTE)),
    "a time": (
        {"since": str(NOW_MS + 50_001), "until": str(NOW_MS + 120_001)},
        JournalQuery(since_ms=NOW_MS + 50_001, until_ms=NOW_MS + 120_001),
    ),
    "a topic": ({"topic": "orders-3,orders-4"}, JournalQuery(topics=frozenset({"orders-3", "orders-4"}))),
    "a group that is not there": ({"group": "nobody"}, JournalQuery(groups=frozenset({"nobody"}))),
    "both": (
        {"topic": "orders-1", "since": str(NOW_MS + 333_001)},
        JournalQuery(topics=frozenset({"orders-1"}), since_ms=NOW_MS + 333_001),
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_rows_are_those_of_the_journals_reader(journal: str, case: str) -> None:
    """All columns of all rows, in their order."""
    options, wanted = CASES[case]
    rows = expected(journal, wanted)
    names = list(rows[0]) if rows else ["queue"]
    assert by_source(journal, names, **options) == rows
    assert bool(rows) == (case != "a group that is not there")


def test_columns_are_those_that_are_asked_for(journal: str) -> None:
    """In their order, and no others."""
    assert list(by_source(journal, ["end", "topic"])[0]) == ["end", "topic"]
