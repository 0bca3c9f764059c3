"""Parameters of searches on the admin port."""

from __future__ import annotations

from collections.abc import Mapping

from broker.query import ALL_MS, QueryRefused
from proxy.operate.moments import parse_moment


def check_names(given: Mapping[str, str], names: tuple[str, ...]) -> None:
    """Raise QueryRefused for a parameter that is not one of `names`."""
    unknown = sorted(set(given) - set(names))
    if unknown:
        raise QueryRefused(f"unknown parameter {unknown[0]!r}; use {', '.join(names)}")


def time_span(given: Mapping[str, str], now_ms: int, *, span_is_age: bool = True) -> tuple[int, int]:
    """Return what `from` and `to` say, ms since the epoch, all time where they are not given; as `parse_moment`.

    Raises:
        QueryRefused: One is no moment, or they are the wrong way round.
    """
    try:
        begin_ms = parse_moment(given["from"], now_ms, span_is_age=span_is_age) if "from" in given else 0
        end_ms = parse_moment(given["to"], now_ms, span_is_age=span_is_age) if "to" in given else ALL_MS
    except ValueError as error:
        raise QueryRefused(str(error)) from error
    if begin_ms > end_ms:
        raise QueryRefused("`from` is later than `to`; swap them")
    return begin_ms, end_ms
