"""Burrow's rules (`lag.rules.burrow`) as SQL over arrays: a second form, held to the first by tests."""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame

from lag.rules.burrow import BurrowOptions, BurrowStatus

DEFAULTS: Final = BurrowOptions()


def burrow_status(windows: DataFrame, options: BurrowOptions = DEFAULTS) -> DataFrame:
    """Add `burrow`, the name of Burrow's status, to one row per window.

    Args:
        windows: `commits`, an array of structs of `time_ms`, `offset` and `lag`, oldest first, as
            `lag.rules.burrow.commits_of` makes them; `ends`, an array of the queue's remembered ends; `current_lag`
            and `now_ms`. All BIGINT.
        options: What Burrow's configuration says.
    """
    first, last = "get(commits, 0)", "get(commits, size(commits) - 1)"
    places = "transform(commits, (x, i) -> i)"
    rules = {
        BurrowStatus.NOTFOUND: "size(commits) = 0",
        BurrowStatus.OK: f"size(commits) / {options.intervals}.0D < {options.minimum_complete!r}D "
        f"OR current_lag <= {options.allowed_lag}",
        BurrowStatus.STOP: f"now_ms - {last}.time_ms > {last}.time_ms - {first}.time_ms "
        f"AND forall(ends, e -> e > {last}.offset)",
        BurrowStatus.REWIND: f"exists(commits, x -> x.offset > {last}.offset)",
    }
    further = {
        BurrowStatus.OK: f"exists(commits, x -> x.lag <= {options.allowed_lag})",
        BurrowStatus.STALL: f"forall(commits, x -> x.offset = {last}.offset)",
        BurrowStatus.WARN: f"forall({places}, i -> i = 0 OR get(commits, i).lag >= get(commits, i - 1).lag)",
    }
    cases = [f"WHEN {rule} THEN '{status.name}'" for table in (rules, further) for status, rule in table.items()]
    return windows.selectExpr("*", f"CASE {' '.join(cases)} ELSE 'OK' END AS burrow")
