"""What a consumer has to report: offsets acked and failed per queue, kept until an answered call has carried them."""

from __future__ import annotations

import itertools
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

    def next_chain(self) -> list[QueueResult]:
        """Results of up to `CHAIN_LENGTH_MAX` queues for one call; they stay until `answered` (S2)."""
        return list(itertools.islice(self._queues.values(), CHAIN_LENGTH_MAX))

    def answered(self, chain: Iterable[QueueResult]) -> None:
        """Forget what an answered call has carried; nothing may have been added since `next_chain`."""
        for result in chain:
            del self._queues[result.topic, result.qid]
