"""The message as a script sees it, and what it gathers (`pyddmq.scripts`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from actions.sinks.commands import HBaseAppend, HBaseDelete, HBaseIncrement, HBasePut, RedisCommand
from pyddmq.actions import Context, Job, Outgoing
from pyddmq.scripts import Value


class ScriptMessage:
    """One message; see `pyddmq.scripts.Script`."""

    def __init__(self, job: Job, data: Any, context: Context) -> None:
        self.data = data
        self._job = job
        self._context = context
        self._gathered = Outgoing()
        self.redis = _Redis(self._gathered.commands)
        self.hbase = _HBase(self._gathered.commands)

    @property
    def key(self) -> str | None:
        return self._job.message.key

    @property
    def tag(self) -> str | None:
        return self._job.message.tag

    @property
    def body(self) -> bytes:
        return bytes(self._job.body)

    @property
    def properties(self) -> Mapping[str, str]:
        return self._job.message.properties

    @property
    def born_ms(self) -> int:
        return self._job.message.born_ms

    @property
    def now_ms(self) -> int:
        return self._context.wall_ms()

    @property
    def group(self) -> str:
        return self._job.group

    @property
    def topic(self) -> str:
        return self._job.topic

    @property
    def qid(self) -> str:
        return self._job.qid

    @property
    def offset(self) -> int:
        return self._job.offset

    @property
    def attempts(self) -> int:
        return self._job.attempts

    def add_header(self, name: str, value: object) -> None:
        text = str(value)
        if any(each in name or each in text for each in "\r\n\0"):
            raise ValueError(f"the header {name!r} contains a line break")
        self._gathered.headers.append((name, text))

    def add_form(self, name: str, value: object) -> None:
        self._gathered.form.append((name, str(value)))

    def add_query(self, name: str, value: object) -> None:
        self._gathered.query.append((name, str(value)))

    def count(self, event: str, amount: int = 1) -> None:
        self._context.count(event, amount)

    def hand_over(self) -> None:
        """Give what was gathered, and the body, to the actions behind."""
        job, gathered = self._job, self._gathered
        job.data = self.data
        if gathered.headers or gathered.form or gathered.query or gathered.commands:
            outgoing = job.outgoing
            outgoing.headers.extend(gathered.headers)
            outgoing.form.extend(gathered.form)
            outgoing.query.extend(gathered.query)
            outgoing.commands.extend(gathered.commands)


class _Redis:
    """Gathers commands; see `pyddmq.scripts.Redis`."""

    def __init__(self, commands: list[Any]) -> None:
        self._commands = commands

    def set(self, key: Value, value: Value) -> None:
        self._add("SET", key, value)

    def delete(self, *keys: Value) -> None:
        self._add("DEL", *keys)

    def hset(self, key: Value, field: Value, value: Value) -> None:
        self._add("HSET", key, field, value)

    def hmset(self, key: Value, fields: Mapping[str, Value]) -> None:
        self._add("HMSET", key, *(each for pair in fields.items() for each in pair))

    def hdel(self, key: Value, *fields: Value) -> None:
        self._add("HDEL", key, *fields)

    def mset(self, values: Mapping[str, Value]) -> None:
        self._add("MSET", *(each for pair in values.items() for each in pair))

    def _add(self, name: str, *args: Value) -> None:
        for each in args:
            if isinstance(each, bool) or not isinstance(each, str | bytes | int | float):
                raise TypeError(f"{name} accepts texts, bytes and numbers, not {each!r:.60}")
        if len(args) < (1 if name == "DEL" else 2):
            raise TypeError(f"{name} has too few arguments")
        self._commands.append(RedisCommand(name, args))


class _HBase:
    """Gathers mutations; see `pyddmq.scripts.HBase`."""

    def __init__(self, commands: list[Any]) -> None:
        self._commands = commands

    def put(self, table: str, row: str, columns: Mapping[str, str | bytes]) -> None:
        self._commands.append(HBasePut(table, row, _cells(columns)))

    def delete(self, table: str, row: str, *columns: str) -> None:
        _cells(dict.fromkeys(columns, b"")) if columns else None
        self._commands.append(HBaseDelete(table, row, columns))

    def append(self, table: str, row: str, columns: Mapping[str, str | bytes]) -> None:
        self._commands.append(HBaseAppend(table, row, _cells(columns)))

    def increment(self, table: str, row: str, columns: Mapping[str, int]) -> None:
        for column, amount in columns.items():
            if isinstance(amount, bool) or not isinstance(amount, int):
                raise TypeError(f"{column} can only be incremented by an integer, not {amount!r:.60}")
        _cells(dict.fromkeys(columns, b""))
        self._commands.append(HBaseIncrement(table, row, dict(columns)))


def _cells(columns: Mapping[str, str | bytes]) -> dict[str, bytes]:
    """Return columns with their values as bytes.

    Raises:
        ValueError: There are none, or a name is not `family:qualifier`.
        TypeError: A value is neither a text nor bytes.
    """
    if not columns:
        raise ValueError("no column; write {'family:qualifier': value}")
    for name in columns:
        if ":" not in name:
            raise ValueError(f"{name!r} is not a valid column; write family:qualifier")
    cells = {}
    for name, value in columns.items():
        if not isinstance(value, str | bytes):
            raise TypeError(f"{name} accepts a text or bytes, not {value!r:.60}")
        cells[name] = value.encode() if isinstance(value, str) else value
    return cells
