"""What people who write functions for the action `Python` are given: a `Script`.

docs/actions-script.md explains it with an example. It has what DDMQ's scripts have (R28): the fields of the body, what
is known of the message, and what may be gathered for the action that sends it on. It imports no room.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

__all__ = ["HBase", "Redis", "Script", "Value"]

Value = str | bytes | int | float


class Redis(Protocol):
    """Gathers commands for the action Redis, which runs them in their order."""

    def set(self, key: Value, value: Value) -> None:
        """SET key value."""

    def delete(self, *keys: Value) -> None:
        """DEL key ..."""

    def hset(self, key: Value, field: Value, value: Value) -> None:
        """HSET key field value."""

    def hmset(self, key: Value, fields: Mapping[str, Value]) -> None:
        """HMSET key field value ..."""

    def hdel(self, key: Value, *fields: Value) -> None:
        """HDEL key field ..."""

    def mset(self, values: Mapping[str, Value]) -> None:
        """MSET key value ..."""


class HBase(Protocol):
    """Gathers mutations for the action HBase, which applies them in their order. Columns are `family:qualifier`."""

    def put(self, table: str, row: str, columns: Mapping[str, str | bytes]) -> None:
        """Set cells; texts are written as UTF-8."""

    def delete(self, table: str, row: str, *columns: str) -> None:
        """Delete cells; without columns the whole row."""

    def append(self, table: str, row: str, columns: Mapping[str, str | bytes]) -> None:
        """Append to cells; texts as UTF-8."""

    def increment(self, table: str, row: str, columns: Mapping[str, int]) -> None:
        """Add to counters."""


class Script(Protocol):
    """One message, as a script sees it.

    What it gathers counts when the function returns; of one that raises nothing is kept.
    """

    data: Any
    """The parsed body (a dict) behind Json, else bytes. Change it or assign it again: actions behind continue with
    that."""

    @property
    def redis(self) -> Redis:
        """Gathers commands for Redis."""

    @property
    def hbase(self) -> HBase:
        """Gathers mutations for HBase."""

    @property
    def key(self) -> str | None:
        """Message key."""

    @property
    def tag(self) -> str | None:
        """Its tag."""

    @property
    def body(self) -> bytes:
        """The body as it was published."""

    @property
    def properties(self) -> Mapping[str, str]:
        """User properties."""

    @property
    def born_ms(self) -> int:
        """When the producer's request arrived, ms since the epoch."""

    @property
    def now_ms(self) -> int:
        """The node's time, ms since the epoch."""

    @property
    def group(self) -> str:
        """Consumer group."""

    @property
    def topic(self) -> str:
        """Topic."""

    @property
    def qid(self) -> str:
        """Text of the queue on the wire."""

    @property
    def offset(self) -> int:
        """Position in the queue."""

    @property
    def attempts(self) -> int:
        """Failed attempts so far, of all kinds and over restarts."""

    def add_header(self, name: str, value: object) -> None:
        """Add an HTTP header. Raises ValueError for a line break, which would end it."""

    def add_form(self, name: str, value: object) -> None:
        """Add a field of the form."""

    def add_query(self, name: str, value: object) -> None:
        """Add a parameter of the URL."""

    def count(self, event: str, amount: int = 1) -> None:
        """Count in `pyddmq_action_events_total` under a name of the script's own, one of few."""
