"""What a query's filters say of moments and names, so that a source reads less.

A source takes what it can use and leaves all filters with Spark, which asks them again of each row: a filter that is
understood in part can only make the reading cheaper, never the answer wrong.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from pyspark.sql.datasource import EqualTo, Filter, GreaterThan, GreaterThanOrEqual, In, LessThan, LessThanOrEqual

from lag.journal.reader import JournalQuery
from lag.spark.sources import options as read

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


def query_of(options: Mapping[str, str]) -> JournalQuery:
    """Read the options `since`, `until`, `group` and `topic`. Raises OptionRefused."""
    return JournalQuery(
        since_ms=read.moment_ms(options, "since"),
        until_ms=read.moment_ms(options, "until"),
        groups=read.names(options, "group"),
        topics=read.names(options, "topic"),
    )


def narrowed(wanted: JournalQuery, filters: Iterable[Filter], moment: str) -> JournalQuery:
    """Return what is left of a query by filters; `moment` is the column that its moments are of."""
    found = bounds_of(filters)
    begins = [each for each in (wanted.since_ms, found.low.get(moment)) if each is not None]
    ends = [] if wanted.until_ms is None else [wanted.until_ms]
    if moment in found.high:
        ends.append(found.high[moment] + 1)
    return replace(
        wanted,
        since_ms=max(begins, default=None),
        until_ms=min(ends, default=None),
        groups=_common(wanted.groups, found.texts.get("group")),
        topics=_common(wanted.topics, found.texts.get("topic")),
    )


def _common(names: frozenset[str] | None, others: frozenset[str] | None) -> frozenset[str] | None:
    """Return the names that are in both, None being all."""
    return others if names is None else names if others is None else names & others
