"""Parameters of searches on the admin port."""

from __future__ import annotations

from collections.abc import Mapping

from broker.query import QueryRefused


def check_names(given: Mapping[str, str], names: tuple[str, ...]) -> None:
    """Raise QueryRefused for a parameter that is not one of `names`."""
    unknown = sorted(set(given) - set(names))
    if unknown:
        raise QueryRefused(f"there is no parameter {unknown[0]!r}; use {', '.join(names)}")
