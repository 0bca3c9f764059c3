"""Spark data sources of pyddmq: `pyddmq_lag`, samples from lag journals; `pyddmq_messages`, of stores and nodes.

And the sink `pyddmq`: rows as messages to a node.
"""

from __future__ import annotations

from typing import Any

from lag.spark.sources.journal import LagSource
from lag.spark.sources.messages import MessageSource
from lag.spark.sources.sink import MessageSink

SOURCES = (LagSource, MessageSource, MessageSink)


def register(spark: Any) -> None:
    """Make the sources known to a session. The classes must come from the package that executors have."""
    for source in SOURCES:
        spark.dataSource.register(source)
