"""Options of the HBase sink."""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import AfterValidator, model_validator

from actions.sinks.redis.options import Address
from actions.sinks.templates import Template
from conf.base import Model, Reload, setting

_COLUMN = re.compile(r"[^:/\s][^:/]*:.*", re.DOTALL)


def check_column(text: str) -> str:
    """Return `family:qualifier` as it is. Raises ValueError: it is none."""
    if not _COLUMN.fullmatch(text):
        raise ValueError(f"{text!r} is not a valid column; write family:qualifier, such as d:amount")
    return text


def _check_template(text: str) -> str:
    Template(text)
    return text


Column = Annotated[str, AfterValidator(check_column)]
Text = Annotated[str, AfterValidator(_check_template)]


class TableMapping(Model):
    """One row that each message changes."""

    table: str = setting(
        ..., "Table, `name` or `namespace:name`; it must exist.", reload=Reload.GENERATION, min_length=1, max_length=255
    )
    row: Text = setting(
        ..., "Row key, such as `${key}` or `${$.id}`; the places are those of docs/sinks.md.", reload=Reload.GENERATION
    )
    operation: Literal["put", "delete", "append", "increment"] = setting(
        "put", "What becomes of the columns.", reload=Reload.GENERATION
    )
    columns: dict[Column, Text] = setting(
        {},
        "By `family:qualifier` the value, such as `${$.amount}` or `${body}`; for `increment` a whole number; for "
        "`delete` it does not matter, and none means the whole row.",
        reload=Reload.GENERATION,
        max_length=1_000,
    )
    tags: list[str] = setting(
        [], "Only messages with one of these tags.", reload=Reload.GENERATION, absent="all messages", max_length=100
    )

    @model_validator(mode="after")
    def _check(self) -> TableMapping:
        if not self.columns and self.operation != "delete":
            raise ValueError(f"{self.operation} needs columns, such as {{'d:body': '${{body}}'}}")
        return self


class HBaseOptions(Model):
    """`options: {HBase: {...}}`."""

    hosts: list[Address] = setting(
        ...,
        "Thrift servers of HBase, `host:port`; one is used, the next when it is away.",
        reload=Reload.GENERATION,
        min_length=1,
        max_length=64,
    )
    transport: Literal["buffered", "framed"] = setting(
        "buffered", "Transport of the Thrift servers (`framed`: started with -f).", reload=Reload.GENERATION
    )
    protocol: Literal["binary", "compact"] = setting(
        "binary", "Protocol of the Thrift servers (`compact`: started with -c).", reload=Reload.GENERATION
    )
    timeout: int = setting(
        5_000, "Milliseconds for connecting, and for a call.", reload=Reload.GENERATION, ge=1, le=30_000
    )
    pool_size: int = setting(4, "Connections at most.", reload=Reload.GENERATION, ge=1, le=64)
    tables: list[TableMapping] = setting(
        [],
        "Rows that each message changes, in order, before the commands that actions gathered.",
        reload=Reload.GENERATION,
        max_length=100,
    )
    timestamp: Literal["storeTime", "storeOrder"] = setting(
        "storeTime",
        "Timestamp of cells: the message's store time in ms; `storeOrder` also tells messages of one millisecond "
        "apart (store time << 20 | offset), and is no time any more for a TTL.",
        reload=Reload.GENERATION,
    )
    on_missing: Literal["fail", "skip", "null"] = setting(
        "fail",
        "What a message gets that lacks a field: `fail`: the dead letters; `skip`: the column is left out, of a row "
        "key the whole row; `null`: the field is empty.",
        reload=Reload.GENERATION,
    )
    on_empty: Literal["fail", "finish"] = setting(
        "fail",
        "What a message without any mutation gets: `fail`: the dead letters; `finish`: it is consumed, and counted.",
        reload=Reload.GENERATION,
    )
    once_family: str | None = setting(
        None,
        "Column family for markers, in each table that has appends or increments: with it a repeat of these has no "
        "second effect. Give the family a TTL.",
        reload=Reload.GENERATION,
        absent="appends and increments are at least once",
        min_length=1,
        max_length=100,
    )
