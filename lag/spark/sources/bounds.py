"""What a query's filters say of moments and names, so that a source reads less.

A source takes what it can use and leaves all filters with Spark, which asks them again of each row: a filter that is
understood in part can only make the reading cheaper, never the answer wrong.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from pyspark.sql.datasource import EqualTo, Filter, GreaterThan, GreaterThanOrEqual, In, LessThan, LessThanOrEqual

MOMENTS_MAX = 1 << 62


@dataclass(frozen=True, slots=True)
class Bounds:
    """What is asked for.

    Attributes:
        low: Least value that a number may have, by column.
        high: Greatest one.
        texts: Values that a text may have, by column.
    """

    low: dict[str, int]
    high: dict[str, int]
    texts: dict[str, frozenset[str]]


def bounds_of(filters: Iterable[Filter]) -> Bounds:
    """Read filters that all hold at once; those of other kinds say nothing."""
    found = Bounds({}, {}, {})
    for each in filters:
        if isinstance(each, In):
            column, values = _column(each), tuple(each.value)
        elif isinstance(each, EqualTo | GreaterThan | GreaterThanOrEqual | LessThan | LessThanOrEqual):
            column, values = _column(each), (each.value,)
        else:
            continue
        if column is None or not values:
            continue
        if all(isinstance(value, str) for value in values) and isinstance(each, In | EqualTo):
            known = found.texts.get(column)
            wanted = frozenset(values)
            found.texts[column] = wanted if known is None else known & wanted
        elif all(isinstance(value, int) for value in values):
            _narrow(found, column, each, [int(value) for value in values])
    return found


def _narrow(found: Bounds, column: str, each: Filter, values: list[int]) -> None:
    low, high = -MOMENTS_MAX, MOMENTS_MAX
    if isinstance(each, EqualTo | In):
        low, high = min(values), max(values)
    elif isinstance(each, GreaterThan):
        low = values[0] + 1
    elif isinstance(each, GreaterThanOrEqual):
        low = values[0]
    elif isinstance(each, LessThan):
        high = values[0] - 1
    elif isinstance(each, LessThanOrEqual):
        high = values[0]
    if low > -MOMENTS_MAX:
        found.low[column] = max(low, found.low.get(column, low))
    if high < MOMENTS_MAX:
        found.high[column] = min(high, found.high.get(column, high))


def _column(each: Any) -> str | None:
    """Return the column that a filter is of; None: a field within one."""
    return each.attribute[0] if len(each.attribute) == 1 else None


def later(bound: int | None, other: int | None) -> int | None:
    """Return the later of two begins, None being none."""
    return other if bound is None else bound if other is None else max(bound, other)


def sooner(bound: int | None, other: int | None) -> int | None:
    """Return the sooner of two ends, None being none."""
    return other if bound is None else bound if other is None else min(bound, other)


def common(names: frozenset[str] | None, others: frozenset[str] | None) -> frozenset[str] | None:
    """Return the names that are in both, None being all."""
    return others if names is None else names if others is None else names & others
