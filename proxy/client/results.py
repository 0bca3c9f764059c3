"""What a consumer has to report: offsets acked and failed per queue, kept until an answered call has carried them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

CHAIN_LENGTH_MAX = 100
"""Queues per nextResult chain: thriftpy2 writes a chain recursively, and what is left rides on the next call."""


class QueueResult(NamedTuple):
    """Results for one queue: offsets that succeeded and offsets that failed."""

    topic: str
    qid: str
    success: list[int]
    fail: list[int]


class PendingResults:
    """Results in the order in which their queues were first heard of."""

    def __init__(self) -> None:
        self._queues: dict[tuple[str, str], QueueResult] = {}

    def __len__(self) -> int:
        return sum(len(result.success) + len(result.fail) for result in self._queues.values())

    def add(self, topic: str, qid: str, offset: int, *, success: bool) -> None:
        """Note one outcome."""
        result = self._queues.get((topic, qid))
        if result is None:
            result = self._queues[topic, qid] = QueueResult(topic, qid, [], [])
        (result.success if success else result.fail).append(offset)

    def take(self) -> list[QueueResult]:
        """Remove up to `CHAIN_LENGTH_MAX` queues' results for one call; `put_back` returns them when it fails."""
        keys = list(self._queues)[:CHAIN_LENGTH_MAX]
        return [self._queues.pop(key) for key in keys]

    def put_back(self, results: Iterable[QueueResult]) -> None:
        """Keep results of a call that was not answered, in front of newer ones (S2)."""
        newer = self._queues
        self._queues = {(result.topic, result.qid): result for result in results}
        for key, result in newer.items():
            if key in self._queues:
                self._queues[key].success.extend(result.success)
                self._queues[key].fail.extend(result.fail)
            else:
                self._queues[key] = result
