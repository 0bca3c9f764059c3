"""Every command of the HBase sink, at a real HBase through its Thrift server."""

from __future__ import annotations

import struct
import time
from collections.abc import Iterator
from typing import Any

import pytest

from actions.client_factories import Outside
from actions.sinks.commands import HBaseAppend, HBaseCommand, HBaseDelete, HBaseIncrement, HBasePut
from actions.sinks.hbase.sink import HBaseSink
from pyddmq.actions import Failed, RetryLater, Status
from tests.sinks.servers import HBaseServer
from tests.unit.actions.sinks.surroundings import FakeJob, opened

pytestmark = pytest.mark.long

TABLE = "commands"
STORED = 1_700_000_000_000


@pytest.fixture
def table(hbase: HBaseServer) -> Iterator[Any]:
    """A table with the families d, e and m, as happybase has it; what is in it is the tests' own, by row."""
    hbase.make_table(TABLE, d={"max_versions": 5}, e={}, m={"time_to_live": 86_400})
    connection = hbase.connection()
    yield connection.table(TABLE)
    connection.close()


def answers_of(server: HBaseServer, *jobs: FakeJob, **options: Any) -> list[Any]:
    """Carry out one batch."""
    sink = opened(
        HBaseSink, {"hosts": [server.address], "transport": "framed", "timeout": 30_000, **options}, Outside()
    )
    # Markers have a time to live.
    sink.context.ahead = time.time() - STORED / 1000
    answers = list(sink.act_many(jobs))
    sink.close()
    return answers


def asking(offset: int, *commands: HBaseCommand, **more: Any) -> FakeJob:
    """A message with commands that an action before gathered."""
    job = FakeJob(offset, **more)
    job.outgoing.commands += commands
    return job


def test_put_has_the_messages_store_time(hbase: HBaseServer, table: Any) -> None:
    """Any bytes; a message of an earlier time that comes again hides nothing (D46)."""
    put = asking(5, HBasePut(TABLE, b"put\xff", {"d:a": b"\x00\xff", "e:b": b"2"}))
    older = asking(4, HBasePut(TABLE, b"put\xff", {"d:a": b"old"}))

    assert answers_of(hbase, put) == answers_of(hbase, older) == [Status.FINISH]
    assert table.row(b"put\xff", include_timestamp=True) == {
        b"d:a": (b"\x00\xff", STORED + 5),
        b"e:b": (b"2", STORED + 5),
    }


def test_delete_of_a_column_a_family_and_a_row(hbase: HBaseServer, table: Any) -> None:
    """What is newer than the message stays."""
    cells = {"d:a": b"1", "d:b": b"2", "e:c": b"3", "e:d": b"4"}
    for row in ("column", "family", "row", "newer"):
        assert answers_of(hbase, asking(1, HBasePut(TABLE, row, cells))) == [Status.FINISH]
    done = answers_of(
        hbase,
        asking(2, HBaseDelete(TABLE, "column", ("d:a",))),
        asking(3, HBaseDelete(TABLE, "family", ("e",))),
        asking(4, HBaseDelete(TABLE, "row")),
        asking(0, HBaseDelete(TABLE, "newer")),
    )

    assert done == [Status.FINISH] * 4
    assert sorted(table.row(b"column")) == [b"d:b", b"e:c", b"e:d"]
    assert sorted(table.row(b"family")) == [b"d:a", b"d:b"]
    assert table.row(b"row") == {}
    assert len(table.row(b"newer")) == 4


def test_row_that_is_deleted_and_put_by_one_message_has_what_was_put(hbase: HBaseServer, table: Any) -> None:
    """And the same when it comes again."""
    assert answers_of(hbase, asking(1, HBasePut(TABLE, "anew", {"d:a": b"old", "e:a": b"old"}))) == [Status.FINISH]
    anew = asking(2, HBaseDelete(TABLE, "anew"), HBasePut(TABLE, "anew", {"d:a": b"new"}))

    for _ in range(2):
        assert answers_of(hbase, anew) == [Status.FINISH]
        assert table.row(b"anew") == {b"d:a": b"new"}


@pytest.mark.parametrize("once", [True, False])
def test_append_and_increment(hbase: HBaseServer, table: Any, once: bool) -> None:
    """A repeat has a second effect, but none with a family for markers; the counter is HBase's own."""
    row = f"counted {once}"
    changes = asking(
        1,
        HBaseAppend(TABLE, row, {"d:a": b"x"}),
        HBaseIncrement(TABLE, row, {"d:n": 5, "d:m": -1}),
        HBaseAppend(TABLE, row, {"d:a": b"y"}),
    )
    more = {"onceFamily": "m"} if once else {}

    for _ in range(2):
        assert answers_of(hbase, changes, **more) == [Status.FINISH]

    times = 1 if once else 2
    found = {column: value for column, value in table.row(row.encode()).items() if not column.startswith(b"m:")}
    assert found == {
        b"d:a": b"xy" * times,
        b"d:n": struct.pack(">q", 5 * times),
        b"d:m": struct.pack(">q", -1 * times),
    }
    assert table.counter_inc(row.encode(), b"d:n") == 5 * times + 1


def test_tables_of_the_options_and_order_of_one_millisecond(hbase: HBaseServer, table: Any) -> None:
    """All operations by the configuration alone; of two messages of one time the later one is seen."""
    tables = [
        {"table": TABLE, "row": "t-${key}", "columns": {"d:body": "${body}"}},
        {"table": TABLE, "row": "t-all", "operation": "increment", "columns": {"d:n": "${$.n}"}},
        {"table": TABLE, "row": "t-all", "operation": "append", "columns": {"d:keys": "${key}"}},
        {"table": TABLE, "row": "t-gone", "operation": "delete", "tags": ["last"]},
    ]
    assert answers_of(hbase, asking(0, HBasePut(TABLE, "t-gone", {"d:a": b"1"}))) == [Status.FINISH]
    jobs = [FakeJob(each, b'{"n": %d}' % each, key="k", stored_ms=STORED) for each in (2, 1)]
    last = FakeJob(3, b'{"n": 3}', key="l", tag="last", stored_ms=STORED + 1)

    assert answers_of(hbase, *jobs, last, tables=tables, timestamp="storeOrder") == [Status.FINISH] * 3
    assert table.row(b"t-k") == {b"d:body": b'{"n": 2}'}
    assert table.row(b"t-all") == {b"d:n": struct.pack(">q", 6), b"d:keys": b"kkl"}
    assert table.row(b"t-gone") == {}


def test_refusals_fail_the_message_and_a_missing_table_is_waited_for(hbase: HBaseServer, table: Any) -> None:
    """A family that there is not is the message's fault, and no other's; a table may be on the move."""
    good = asking(1, HBasePut(TABLE, "good", {"d:a": b"1"}), stored_ms=STORED)
    bad = asking(2, HBasePut(TABLE, "bad", {"none:a": b"1"}), stored_ms=STORED)
    answers = answers_of(hbase, good, bad)
    assert answers[0] is Status.FINISH
    assert isinstance(answers[1], Failed)
    assert "NoSuchColumnFamily" in str(answers[1])
    assert table.row(b"good") == {b"d:a": b"1"}

    [answer] = answers_of(hbase, asking(3, HBasePut("nowhere", "row", {"d:a": b"1"})))
    assert isinstance(answer, RetryLater | Failed)
    assert "nowhere" in str(answer)
    [answer] = answers_of(hbase, asking(4, HBaseIncrement(TABLE, "good", {"d:a": 1})))
    assert isinstance(answer, Failed)
