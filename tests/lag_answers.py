"""Answers about lag, made of plain values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lag.rules.statuses import BY_NAME
from proxy.operate.attention.judgement import Judgement, LagQueues, judgement
from proxy.operate.views.findings import Finding
from proxy.operate.views.lag import LagQueue
from tests.admin_node import NOW_MS


def lag_queue(group: str = "billing", topic: str = "orders", queue: int = 0, **figures: Any) -> LagQueue:
    """Return a queue that is OK, but for what is given."""
    status = figures.get("status", "OK")
    usual: dict[str, Any] = {
        "time_ms": NOW_MS,
        "status": status,
        "level": BY_NAME[status].level.name if status in BY_NAME else "OK",
        "cause": None,
        "evidence": "",
        "advice": BY_NAME[status].advice if status in BY_NAME else "",
        "time_lag_method": "message",
        "samples": 30,
        "held_key": None,
        "held_offset": None,
        "lost": 0,
        "in_flight": 0,
        "lag": 0,
        "unfinished": 0,
        "time_lag_ms": 0,
        "time_lag_low_ms": 0,
        "time_lag_high_ms": 0,
        "produce_rate": 0.0,
        "consume_rate": 0.0,
        "velocity": 0.0,
        "catch_up_s": None,
        "retention_ratio": 0.0,
        "loss_eta_s": None,
        "filtered_lag": 0,
        "committed": 0,
        "end": 0,
    }
    return LagQueue(group=group, topic=topic, queue=queue, **(usual | figures))


def lag_judgement(queues: Sequence[LagQueue], found: Sequence[Finding] = (), **more: Any) -> Judgement:
    """Return the judgement of these queues and findings."""
    return judgement(LagQueues(now_ms=NOW_MS, every_ms=10_000, queues=queues, **more), found)
