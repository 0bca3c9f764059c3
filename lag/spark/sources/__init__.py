"""Spark data sources of pyddmq, and its sink.

`pyddmq_lag`: samples from lag journals; `pyddmq_acks`: single messages from ack logs; `pyddmq_messages`: messages of
stores and nodes; `pyddmq_waiting`: records of delay levels and timers. The sink `pyddmq`: rows as messages to a node.
"""

from __future__ import annotations

from typing import Any

from lag.spark.sources.acks import AckSource
from lag.spark.sources.journal import LagSource
from lag.spark.sources.messages import MessageSource
from lag.spark.sources.sink import MessageSink
from lag.spark.sources.waiting import WaitingSource

SOURCES = (LagSource, AckSource, MessageSource, WaitingSource, MessageSink)


def register(spark: Any) -> None:
    """Make the sources known to a session. The classes must come from the package that executors have."""
    for source in SOURCES:
        spark.dataSource.register(source)
