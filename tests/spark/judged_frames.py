"""Samples as a data frame, and every row of it judged; imports pyspark."""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import types as t

from lag.rules import statuses
from lag.rules.limits import LagLimits
from lag.rules.quantities import ALL
from lag.samples import SAMPLE_FIELDS
from lag.spark.columns import with_cause, with_neighbours, with_status

_WORDS = frozenset(
    {"cluster", "node", "group", "topic", "held_key", "held_reason", "out_client", "sink_server", "sink_reason"}
)
_TYPES = {name: t.BooleanType() for name in ("paused", "limited", "pushing")} | {"matched": t.DoubleType()}

SAMPLES: Final = t.StructType(
    [
        t.StructField(name, t.StringType() if name in _WORDS else _TYPES.get(name, t.LongType()))
        for name in ("cluster", "node", "group", "topic", "queue", *SAMPLE_FIELDS)
    ]
)
"""Columns of samples: the fields of `QueueKey` and `QueueSample`."""


def judged(samples: DataFrame, limits: LagLimits, *, keep_facts: bool = False) -> DataFrame:
    """Judge every row as the newest sample of its queue; with `keep_facts`, what the rules looked at stays."""
    frame = with_cause(with_neighbours(with_status(samples, limits)), limits)
    cases = " ".join(f"WHEN '{each.name}' THEN '{each.level.name}'" for each in statuses.STATUSES)
    frame = frame.selectExpr("*", f"CASE status {cases} END AS level")
    if keep_facts:
        return frame
    given = [name for name in samples.columns if name not in ALL]
    return frame.select(*(f"`{name}`" for name in (*given, *ALL, "status", "level", "cause")))
