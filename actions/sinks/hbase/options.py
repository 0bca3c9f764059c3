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
        ..., "Row key, such as `${key}` or `${$.id}`; docs/sinks.md lists the placeholders.", reload=Reload.GENERATION
    )
    operation: Literal["put", "delete", "append", "increment"] = setting(
        "put", "Operation on the columns.", reload=Reload.GENERATION
    )
    columns: dict[Column, Text] = setting(
        {},
        "Values by `family:qualifier`, such as `${$.amount}` or `${body}`; an integer for `increment`. For "
        "`delete` the value is ignored, and no columns means the whole row.",
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
        "Thrift servers of HBase, `host:port`; one is used, the next when it does not respond.",
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
        5_000, "Timeout in milliseconds for connecting, and for a call.", reload=Reload.GENERATION, ge=1, le=30_000
    )
    pool_size: int = setting(4, "Maximum number of connections.", reload=Reload.GENERATION, ge=1, le=64)
    tables: list[TableMapping] = setting(
        [],
        "Rows changed for each message, in order, before the commands of earlier actions.",
        reload=Reload.GENERATION,
        max_length=100,
    )
    timestamp: Literal["storeTime", "storeOrder"] = setting(
        "storeTime",
        "Timestamp of cells: the message's store time in ms. `storeOrder` also distinguishes messages of "
        "one millisecond (store time << 20 | offset), but does not work with a TTL.",
        reload=Reload.GENERATION,
    )
    on_missing: Literal["fail", "skip", "null"] = setting(
        "fail",
        "When a message lacks a field: `fail` dead-letters it; `skip` omits the column, or for the row key "
        "the whole row; `null` leaves the field empty.",
        reload=Reload.GENERATION,
    )
    on_empty: Literal["fail", "finish"] = setting(
        "fail",
        "When a message has no mutation: `fail` dead-letters it; `finish` consumes and counts it.",
        reload=Reload.GENERATION,
    )
    once_family: str | None = setting(
        None,
        "Column family for markers, in each table with appends or increments: with it, repeating a message "
        "has no second effect. Give the family a TTL.",
        reload=Reload.GENERATION,
        absent="appends and increments are at least once",
        min_length=1,
        max_length=100,
    )
