"""Commands that actions put into `job.outgoing.commands` for the sink that ends their pipeline: plain values.

A sink carries out the commands of its own kind, in order, and refuses a message that has others: they would never be
done.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple


class RedisCommand(NamedTuple):
    """A command of Redis: its name in either case, and what follows it; numbers go as Redis writes them."""

    name: str
    args: tuple[str | bytes | int | float, ...]


class HBasePut(NamedTuple):
    """Cells of a row, by `family:qualifier`."""

    table: str
    row: str | bytes
    columns: Mapping[str, bytes]


class HBaseDelete(NamedTuple):
    """Cells of a row to delete, by `family:qualifier` or `family`; none: the whole row."""

    table: str
    row: str | bytes
    columns: tuple[str, ...] = ()


class HBaseAppend(NamedTuple):
    """What to put behind the values of cells."""

    table: str
    row: str | bytes
    columns: Mapping[str, bytes]


class HBaseIncrement(NamedTuple):
    """What to add to counters, cells of 8 bytes."""

    table: str
    row: str | bytes
    columns: Mapping[str, int]


HBaseCommand = HBasePut | HBaseDelete | HBaseAppend | HBaseIncrement
