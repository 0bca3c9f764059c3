"""What the sink needs of HBase, and the real one over happybase. Called in threads: all of it blocks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from queue import Empty
from typing import Any, NamedTuple, Protocol, TypeVar

from actions.sinks.faults import ServerAway, ServerRefusedMessage

# Sorts what HBase answers into the kinds of `actions.sinks.faults`.

AWAY = ("NotServingRegion", "RegionTooBusy", "ServerNotRunning", "RetriesExhausted", "CallTimeout", "SocketTimeout",
        "ConnectionClosed", "ConnectException", "ConnectionRefused", "MasterNotRunning", "PleaseHold",
        "RegionServerStopped", "RegionServerAborted", "CallQueueTooBig", "RegionMoved", "RegionOpening", "NoServerFor",
        "FailedServer", "ZooKeeper", "KeeperException", "DroppedSnapshot", "No space left")  # fmt: skip
"""Parts of refusals that say nothing of the mutation: the region or its server is on the move, busy or gone."""

FINAL = ("NoSuchColumnFamily", "TableNotFound", "TableNotEnabled", "AccessDenied", "RowTooBig", "ConstraintException",
         "FailedSanityCheck", "WrongRegion")  # fmt: skip
"""Parts of those that another attempt meets again."""


WAITS = ("SpaceLimitingException", "QuotaExceeded", "RpcThrottling")
"""Parts of refusals of one table or user that an operator, or time, ends: a quota."""


def fault_of(text: str) -> Exception:
    """Return the fault that a refusal with its causes means; anything unknown is about the mutation."""
    first = text.partition("\n")[0][:500]
    # HBase's client wraps what is final, too, into "retries exhausted".
    if any(part in text for part in FINAL):
        return ServerRefusedMessage(first)
    if any(part in text for part in WAITS):
        return ServerRefusedMessage(first, waits=True)
    return ServerAway(first) if any(part in text for part in AWAY) else ServerRefusedMessage(first)


T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class HBaseWish:
    """Which Thrift server, and how to speak to it."""

    host: str
    port: int
    transport: str
    protocol: str
    timeout_ms: int
    pool_size: int


class RowChange(NamedTuple):
    """Cells of a row to put and to delete.

    Attributes:
        row: Row key.
        puts: By `family:qualifier`.
        deletes: `family:qualifier` or `family`; empty: the whole row; None: nothing.
    """

    row: bytes
    puts: Mapping[bytes, bytes]
    deletes: Sequence[bytes] | None


class HBaseLink(Protocol):
    """Connections to one Thrift server. Every call may raise ServerAway (its effect is unknown) or MessageRefused."""

    def change(self, table: str, changes: Sequence[RowChange], timestamp: int) -> None:
        """Change rows, each row's puts, or deletes, at once.

        All cells get the timestamp. Deletes take what is not newer, of a row that is also put to what is older.
        """

    def append(self, table: str, row: bytes, cells: Mapping[bytes, bytes]) -> None:
        """Put bytes behind the values of a row's cells."""

    def increment(self, table: str, row: bytes, amounts: Mapping[bytes, int]) -> None:
        """Add to counters of a row, one after the other."""

    def read(self, table: str, row: bytes, columns: Sequence[bytes]) -> dict[bytes, tuple[bytes, int]]:
        """Return newest values of a row's cells and their timestamps; those that are missing are left out."""

    def close(self) -> None:
        """End all connections; none is in use."""


class RealHBase:
    """happybase and its pool, made with the first call."""

    def __init__(self, wish: HBaseWish) -> None:
        self._wish = wish
        self._pool: Any = None

    def change(self, table: str, changes: Sequence[RowChange], timestamp: int) -> None:
        """Change rows; see `HBaseLink`."""

        def run(connection: Any) -> None:
            from Hbase_thrift import BatchMutation, Mutation

            name = table.encode()
            older: list[Any] = []
            same: list[Any] = []
            puts: list[Any] = []
            for each in changes:
                if each.deletes:
                    deletes = [Mutation(isDelete=True, column=column, writeToWAL=True) for column in each.deletes]
                    (older if each.puts else same).append(BatchMutation(each.row, deletes))
                elif each.deletes is not None:
                    connection.client.deleteAllRowTs(name, each.row, timestamp - bool(each.puts), {})
                if each.puts:
                    cells = [
                        Mutation(isDelete=False, column=column, value=value, writeToWAL=True)
                        for column, value in each.puts.items()
                    ]
                    puts.append(BatchMutation(each.row, cells))
            for batches, at in ((older, timestamp - 1), (same, timestamp), (puts, timestamp)):
                if batches:
                    connection.client.mutateRowsTs(name, batches, at, {})

        self._call(run)

    def append(self, table: str, row: bytes, cells: Mapping[bytes, bytes]) -> None:
        """Append; see `HBaseLink`."""

        def run(connection: Any) -> None:
            from Hbase_thrift import TAppend

            connection.client.append(TAppend(table.encode(), row, list(cells), list(cells.values())))

        self._call(run)

    def increment(self, table: str, row: bytes, amounts: Mapping[bytes, int]) -> None:
        """Add; see `HBaseLink`."""

        def run(connection: Any) -> None:
            for column, amount in amounts.items():
                connection.client.atomicIncrement(table.encode(), row, column, amount)

        self._call(run)

    def read(self, table: str, row: bytes, columns: Sequence[bytes]) -> dict[bytes, tuple[bytes, int]]:
        """Read; see `HBaseLink`."""

        def run(connection: Any) -> dict[bytes, tuple[bytes, int]]:
            found = connection.client.getRowWithColumns(table.encode(), row, list(columns), {})
            cells = found[0].columns if found else {}
            return {_raw(column): (_raw(cell.value), cell.timestamp) for column, cell in cells.items()}

        return self._call(run)

    def close(self) -> None:
        """End all connections."""
        if self._pool is not None:
            _close(self._pool)

    def _call(self, run: Callable[[Any], T]) -> T:
        from happybase import NoConnectionsAvailable
        from thriftpy2.thrift import TException

        pool = None
        try:
            pool = self._pool = self._pool or self._connect()
            with pool.connection(self._wish.timeout_ms / 1000) as connection:
                answer, refusal = self._on_connection(connection, run)
        except NoConnectionsAvailable as error:
            raise ServerAway(str(error) or type(error).__name__) from error
        except (TException, OSError, EOFError) as error:
            # Behind one address the other connections lead to the same lost server, or to an earlier one.
            if self._pool is pool:
                self._pool = None
            if pool is not None:
                _close(pool)
            raise ServerAway(str(error) or type(error).__name__) from error
        if refusal is not None:
            raise refusal
        return answer  # type: ignore[return-value]

    @staticmethod
    def _on_connection(connection: Any, run: Callable[[Any], T]) -> tuple[T | None, Exception | None]:
        """Return the answer or the refusal. The pool replaces a connection that is cut off, and leaves it open."""
        from Hbase_thrift import IllegalArgument, IOError

        try:
            return run(connection), None
        except (IOError, IllegalArgument) as error:
            return None, fault_of(_text(error.message))
        except BaseException:
            connection.close()
            raise

    def _connect(self) -> Any:
        from happybase import ConnectionPool

        wish = self._wish
        form = {"transport": wish.transport, "protocol": wish.protocol}
        return ConnectionPool(wish.pool_size, host=wish.host, port=wish.port, timeout=wish.timeout_ms, **form)


def _close(pool: Any) -> None:
    """Close a pool's idle connections: it has no method for that, and would connect before it closes."""
    with suppress(Empty):
        while True:
            pool._queue.get_nowait().close()


def _raw(value: bytes | str) -> bytes:
    return value.encode("utf-8", "surrogateescape") if isinstance(value, str) else value


def _text(text: bytes | str | None) -> str:
    raw = text.decode("utf-8", "replace") if isinstance(text, bytes) else text
    return (raw or "no reason").strip()
