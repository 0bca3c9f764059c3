"""What is taken out of samples before they are judged: times that a clock made wrong, and second samples of a moment.

The same as `lag.report.clock_steps.without_lies` and `lag.report.local` do with single samples.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pyspark.sql import DataFrame

from lag.report.clock_steps import ClockStep
from lag.report.options import AHEAD_MS, MESSAGE_TIMES, TIME_MIN_MS
from lag.rules.limits import Limits

_CANNOT_BE: Final = "(`{0}` < {1}L OR `{0}` > time_ms + {2}L)"


def without_absurd_times(samples: DataFrame) -> DataFrame:
    """Return samples without message times that cannot be, and the column `absurd`, whether a row had one."""
    conditions = {name: _CANNOT_BE.format(name, TIME_MIN_MS, AHEAD_MS) for name in MESSAGE_TIMES}
    columns = [
        f"if({conditions[name]}, NULL, `{name}`) AS `{name}`" if name in conditions else f"`{name}`"
        for name in samples.columns
    ]
    any_of = " OR ".join(f"coalesce({each}, false)" for each in conditions.values())
    return samples.selectExpr(*columns, f"({any_of}) AS absurd")


def without_lies(samples: DataFrame, steps: Sequence[ClockStep], limits: Limits) -> DataFrame:
    """Return samples without those that a step made worthless, and without times that it made wrong."""
    if not steps:
        return samples
    kept, wrong = [], []
    for step in steps:
        of_node = f"cluster = '{_quoted(step.cluster)}' AND node = '{_quoted(step.node)}'"
        begin, end = step.unknown(limits)
        kept.append(f"NOT ({of_node} AND time_ms >= {begin}L AND time_ms < {end}L)")
        wrong.append((f"{of_node} AND time_ms >= {end}L", step.stored_before_ms))
    columns = []
    for name in samples.columns:
        if name in MESSAGE_TIMES:
            cases = " ".join(f"WHEN {after} AND `{name}` <= {before_ms}L THEN NULL" for after, before_ms in wrong)
            columns.append(f"CASE {cases} ELSE `{name}` END AS `{name}`")
        else:
            columns.append(f"`{name}`")
    return samples.where(" AND ".join(kept)).selectExpr(*columns)


def _quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace("'", "\\'")
