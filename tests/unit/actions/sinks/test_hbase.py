"""The HBase sink over a table in memory: what it sends, and what a repeat does."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from queue import SimpleQueue
from typing import Any

import pytest

from actions.client_factories import Outside
from actions.sinks.commands import HBaseAppend, HBaseDelete, HBaseIncrement, HBasePut, RedisCommand
from actions.sinks.faults import ServerAway, ServerRefusedMessage
from actions.sinks.hbase.link import HBaseWish, RealHBase, RowChange, fault_of
from actions.sinks.hbase.sink import HBaseSink
from pyddmq.actions import Failed, RetryLater, Status, Unprocessable
from tests.conftest import need_module
from tests.unit.actions.sinks.surroundings import FakeJob, opened

STORED = 1_700_000_000_000


class MemoryHBase:
    """Rows of any table: versions of cells by timestamp, and tombstones that hide what is not newer."""

    def __init__(self) -> None:
        self.cells: dict[tuple[bytes, bytes], dict[int, bytes]] = {}
        self.calls = 0
        self.away = False

    def _call(self, table: str) -> None:
        self.calls += 1
        if self.away:
            raise ServerAway("connection refused")
        if table == "full":
            raise fault_of("org.apache.hadoop.hbase.quotas.SpaceLimitingException: NO_WRITES full")
        if table == "none":
            raise ServerRefusedMessage("TableNotFoundException: none")

    def change(self, table: str, changes: Sequence[RowChange], timestamp: int) -> None:
        self._call(table)
        for each in changes:
            for (row, column), versions in self.cells.items():
                named = each.deletes is not None and (not each.deletes or column in each.deletes)
                if row == each.row and named:
                    for at in [at for at in versions if at <= timestamp - bool(each.puts)]:
                        del versions[at]
            for column, value in each.puts.items():
                self.cells.setdefault((each.row, column), {})[timestamp] = value

    def append(self, table: str, row: bytes, cells: Mapping[bytes, bytes]) -> None:
        self._call(table)
        for column, value in cells.items():
            before = self.value(row, column) or b""
            self.cells[(row, column)] = {STORED: before + value}

    def increment(self, table: str, row: bytes, amounts: Mapping[bytes, int]) -> None:
        self._call(table)
        for column, amount in amounts.items():
            before = int.from_bytes(self.value(row, column) or b"", "big")
            self.cells[(row, column)] = {STORED: (before + amount).to_bytes(8, "big")}

    def read(self, table: str, row: bytes, columns: Sequence[bytes]) -> dict[bytes, tuple[bytes, int]]:
        self._call(table)
        found = {}
        for column in columns:
            versions = self.cells.get((row, column))
            if versions:
                found[column] = (versions[max(versions)], max(versions))
        return found

    def close(self) -> None:
        """Nothing."""

    def value(self, row: bytes, column: bytes) -> bytes | None:
        """Newest value of a cell."""
        versions = self.cells.get((row, column))
        return versions[max(versions)] if versions else None


def sink(server: MemoryHBase, **options: Any) -> Any:
    """Open a sink over the server."""
    return opened(HBaseSink, {"hosts": ["h:1"], **options}, Outside(hbase=lambda _: server))


def asking(offset: int, *commands: object, body: bytes = b"{}", tag: str | None = None) -> FakeJob:
    """A message with mutations that an action before gathered."""
    job = FakeJob(offset, body, tag=tag)
    job.outgoing.commands += commands
    return job


def test_tables_of_the_options_make_mutations() -> None:
    """Without any script, from bytes and JSON (W59); an entry for other tags is left out."""
    server = MemoryHBase()
    tables = [
        {"table": "t", "row": "o:${$.id}", "columns": {"d:sum": "${$.sum}", "d:raw": "${body}"}},
        {"table": "t", "row": "n", "operation": "increment", "columns": {"d:n": "${$.id}"}, "tags": ["counted"]},
    ]

    answers = sink(server, tables=tables).act_many([asking(1, body=b'{"id": 7, "sum": 2}')])

    assert answers == [Status.FINISH]
    assert server.cells == {
        (b"o:7", b"d:sum"): {STORED + 1: b"2"},
        (b"o:7", b"d:raw"): {STORED + 1: b'{"id": 7, "sum": 2}'},
    }


@pytest.mark.parametrize("text", ["", "x", "1_0", "1.5", "9" * 19, "9" * 5_000, "\u0661"])
def test_amount_that_no_counter_can_take_is_unprocessable(text: str) -> None:
    """HBase counts in 64 bits: no attempt could ever write it, and nothing is written of the message."""
    server = MemoryHBase()
    tables = [{"table": "t", "row": "n", "operation": "increment", "columns": {"d:n": "${body}"}}]

    [answer] = sink(server, tables=tables).act_many([asking(1, body=text.encode())])

    assert isinstance(answer, Unprocessable)
    assert "use an integer" in str(answer)
    assert not server.cells


def test_repeat_of_an_old_message_hides_no_newer_value() -> None:
    """Cells carry the store time (D46)."""
    server = MemoryHBase()
    target = sink(server)
    for offset, value in ((1, b"old"), (2, b"new"), (1, b"old")):
        assert target.act_many([asking(offset, HBasePut("t", "r", {"d:a": value}))]) == [Status.FINISH]
    assert server.value(b"r", b"d:a") == b"new"

    target.act_many([asking(3, HBasePut("t", "r", {"d:a": b"newest"}))])
    target.act_many([asking(2, HBaseDelete("t", "r"))])
    assert server.value(b"r", b"d:a") == b"newest"


def test_row_that_is_deleted_and_put_by_one_message_has_what_was_put() -> None:
    """A tombstone of its own millisecond would hide it."""
    server = MemoryHBase()
    target = sink(server)
    target.act_many([asking(1, HBasePut("t", "r", {"d:a": b"1", "d:b": b"1"}))])
    target.act_many([asking(2, HBaseDelete("t", "r"), HBasePut("t", "r", {"d:a": b"2"}))])
    assert (server.value(b"r", b"d:a"), server.value(b"r", b"d:b")) == (b"2", None)
    target.act_many([asking(3, HBasePut("t", "r", {"d:a": b"3"}), HBaseDelete("t", "r", ("d:a",)))])
    assert server.value(b"r", b"d:a") is None


@pytest.mark.parametrize("once", [False, True])
def test_appends_and_increments_count_once_with_a_marker(once: bool) -> None:
    """Without `onceFamily` they are at least once, as the page says."""
    server = MemoryHBase()
    target = sink(server, **({"onceFamily": "m"} if once else {}))
    for offset in (1, 2, 1, 1):
        commands = (HBaseIncrement("t", "r", {"d:n": 5}), HBaseAppend("t", "r", {"d:s": b"x"}))
        assert target.act_many([asking(offset, *commands)]) == [Status.FINISH]

    times = 2 if once else 4
    assert server.value(b"r", b"d:n") == (5 * times).to_bytes(8, "big")
    assert server.value(b"r", b"d:s") == b"x" * times
    assert target.context.counts["repeat_left_out"] == (4 if once else 0)


def test_messages_of_one_time_go_in_one_call_and_only_the_refused_one_fails() -> None:
    """A batch of publishes has one store time."""
    server = MemoryHBase()
    jobs = [FakeJob(n, b"{}", stored_ms=STORED) for n in range(3)]
    for number, job in enumerate(jobs):
        job.outgoing.commands.append(HBasePut("none" if number == 1 else "t", f"r{number}", {"d:a": b"1"}))

    answers = sink(server).act_many(jobs)

    assert [type(each) for each in answers] == [Status, Failed, Status]
    assert server.calls == 2


def test_server_that_is_away_is_waited_for() -> None:
    """Uncounted, with one try for the whole batch."""
    server = MemoryHBase()
    server.away = True
    target = sink(server)
    jobs = [asking(n, HBasePut("t", "r", {"d:a": b"1"})) for n in range(5)]

    answers = target.act_many(jobs)

    assert all(isinstance(each, RetryLater) for each in answers)
    assert server.calls == 1
    server.away = False
    target.context.ahead += 60
    assert target.act_many(jobs) == [Status.FINISH] * 5
    assert target.context.counts["server_back"] == 1


@pytest.mark.parametrize(
    ("command", "text"),
    [
        (RedisCommand("set", ("a", "b")), "not a command of HBase"),
        (HBasePut("t", "", {"d:a": b"1"}), "not empty"),
        (HBasePut("t", "r", {"a": b"1"}), "family:qualifier"),
        (HBasePut("t", "r", {}), "no columns"),
        (HBasePut("t", "r", {"d:a": 1}), "use bytes"),  # type: ignore[dict-item]
        (HBaseIncrement("t", "r", {"d:a": 1.5}), "integer"),  # type: ignore[dict-item]
    ],
)
def test_message_with_a_wrong_mutation_is_unprocessable(command: object, text: str) -> None:
    """Nothing of it is sent, and the others go on."""
    server = MemoryHBase()
    good = HBasePut("t", "first", {"d:a": b"1"})
    answers = sink(server).act_many([asking(1, good, command), asking(2, HBasePut("t", "r", {"d:a": b"1"}))])

    assert isinstance(answers[0], Unprocessable)
    assert text in str(answers[0])
    assert answers[1] is Status.FINISH
    assert list(server.cells) == [(b"r", b"d:a")]


def test_message_without_a_mutation_is_dead_lettered_or_consumed_as_chosen() -> None:
    """Never silently."""
    assert isinstance(sink(MemoryHBase()).act_many([FakeJob(1)])[0], Unprocessable)
    target = sink(MemoryHBase(), onEmpty="finish")
    assert target.act_many([FakeJob(1)]) == [Status.FINISH]
    assert target.context.counts["without_command"] == 1


def test_timestamps_by_order_tell_messages_of_one_millisecond_apart() -> None:
    """`storeOrder` grows within a queue."""
    server = MemoryHBase()
    target = sink(server, timestamp="storeOrder")
    for offset, value in ((2, b"second"), (1, b"first")):
        job = FakeJob(offset, b"{}", stored_ms=STORED)
        job.outgoing.commands.append(HBasePut("t", "r", {"d:a": value}))
        target.act_many([job])
    assert server.value(b"r", b"d:a") == b"second"


@pytest.mark.parametrize(
    ("raised", "reported", "closed"),
    [
        ("NoSuchColumnFamilyException: none", ServerRefusedMessage, 0),
        ("NotServingRegionException: orders", ServerAway, 0),
        (OSError("reset"), ServerAway, 1),
    ],
)
def test_connection_stays_after_an_answer_and_is_closed_after_none(
    raised: str | OSError, reported: type[Exception], closed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What HBase refuses costs no connection; a call that was cut off replaces all of them, the idle ones too."""
    need_module("happybase", "pip install 'pyddmq[hbase]'")  # brings the module below
    from Hbase_thrift import IOError as Said

    given = Said(raised.encode()) if isinstance(raised, str) else raised

    class Client:
        def atomicIncrement(self, *words: object) -> None:
            raise given

    class Connection:
        client, closes = Client(), 0

        def close(self) -> None:
            self.closes += 1

    class Pool:
        def __init__(self) -> None:
            self.one, self.idle, self.replaced = Connection(), Connection(), 0
            self._queue: SimpleQueue[Connection] = SimpleQueue()
            self._queue.put(self.idle)

        @contextlib.contextmanager
        def connection(self, timeout: float) -> Iterator[Connection]:
            try:
                yield self.one
            except Exception:
                self.replaced += 1
                raise

    pools: list[Pool] = []

    def connect(*_: object, **__: object) -> Pool:
        pools.append(Pool())
        return pools[-1]

    monkeypatch.setattr("happybase.ConnectionPool", connect)
    link = RealHBase(HBaseWish(host="h", port=1, transport="framed", protocol="binary", timeout_ms=1, pool_size=1))
    for _ in range(2):
        with pytest.raises(reported):
            link.increment("orders", b"r", {b"d:n": 1})
    assert [(each.one.closes, each.replaced, each.idle.closes) for each in pools] == [(closed, closed, closed)] * (
        1 + closed
    )


@pytest.mark.parametrize("stored", [2**63 - 1, 253_402_300_799_000, 1_700_000_000_000_000, -(2**40), -1])
@pytest.mark.parametrize("order", [True, False])
def test_store_time_that_makes_no_timestamp_concerns_its_message_alone(stored: int, order: bool) -> None:
    """In Kafka producers set store times as they like; HBase has 63 bits, and stays in use for all others."""
    server = MemoryHBase()
    target = sink(server, **({"timestamp": "storeOrder"} if order else {}))
    given = [FakeJob(1, stored_ms=STORED), FakeJob(2, stored_ms=stored), FakeJob(3, stored_ms=STORED)]
    for job in given:
        job.outgoing.commands.append(HBasePut("t", f"r{job.offset}", {"d:a": b"1"}))
    answers = target.act_many(given)
    fits = 0 < stored < 2**63 - 1 and not order
    assert answers[0] is answers[2] is Status.FINISH
    assert answers[1] is Status.FINISH if fits else isinstance(answers[1], Unprocessable)
    assert not target.context.counts["server_away"]


def test_quota_of_one_table_holds_its_messages_and_no_others() -> None:
    """They wait alone, uncounted, while other tables are written."""
    target = sink(MemoryHBase())
    answers = target.act_many(
        [asking(1, HBasePut("full", "r", {"d:a": b"1"})), asking(2, HBasePut("t", "r", {"d:a": b"1"}))]
    )

    assert isinstance(answers[0], RetryLater)
    assert "SpaceLimiting" in str(answers[0])
    assert answers[1] is Status.FINISH
    assert not target.context.counts["server_away"]


@pytest.mark.parametrize(
    ("text", "kind", "waits"),
    [
        ("AccessDeniedException: no WRITE on t", ServerRefusedMessage, False),
        ("RetriesExhaustedException: 1 action\n caused by NoSuchColumnFamilyException: x", ServerRefusedMessage, False),
        ("RpcThrottlingException: wait 3sec", ServerRefusedMessage, True),
        ("NotServingRegionException: t,,1", ServerAway, False),
        ("anything else", ServerRefusedMessage, False),
    ],
)
def test_refusals_are_sorted(text: str, kind: type[Exception], waits: bool) -> None:
    """By HBase's words, with their causes."""
    found = fault_of(text)

    assert type(found) is kind
    assert getattr(found, "waits", False) is waits
    assert str(found) == text.partition("\n")[0]
