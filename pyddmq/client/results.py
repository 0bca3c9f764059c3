"""What a consumer has to report: offsets acked and failed per queue, kept until an answered call has carried them."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterable
from typing import NamedTuple

CHAIN_LENGTH_MAX = 100
"""Queues per nextResult chain: thriftpy2 writes a chain recursively, and what is left rides on the next call."""


class QueueResult(NamedTuple):
    """Results for one queue: offsets that succeeded and that failed; by offset numbers of deliveries, and reasons."""

    topic: str
    qid: str
    success: list[int]
    fail: list[int]
    deliveries: dict[int, int]
    reasons: dict[int, str]


class PendingResults:
    """Results in the order in which their queues were first heard of. Any thread may add to them."""

    def __init__(self) -> None:
        self._queues: dict[tuple[str, str], QueueResult] = {}
        self._lock = threading.Lock()

    def __len__(self) -> int:
        with self._lock:
            return sum(len(result.success) + len(result.fail) for result in self._queues.values())

    def add(self, topic: str, qid: str, offset: int, *, success: bool, delivery: int = 0, reason: str = "") -> None:
        """Note one outcome.

        Args:
            topic, qid, offset: The message.
            success: Whether it is done.
            delivery: Number of its delivery; 0: it had none.
            reason: Why it failed.
        """
        with self._lock:
            result = self._queues.get((topic, qid))
            if result is None:
                result = self._queues[topic, qid] = QueueResult(topic, qid, [], [], {}, {})
            (result.success if success else result.fail).append(offset)
            if delivery:
                # The answer to an earlier delivery of it may come last; the result is sent for the present one.
                result.deliveries[offset] = max(delivery, result.deliveries.get(offset, 0))
            if reason:
                result.reasons[offset] = reason

    def next_chain(self) -> list[QueueResult]:
        """Results of up to `CHAIN_LENGTH_MAX` queues for one call; they stay until `answered` (S2)."""
        with self._lock:
            return [
                result._replace(
                    success=result.success.copy(),
                    fail=result.fail.copy(),
                    deliveries=result.deliveries.copy(),
                    reasons=result.reasons.copy(),
                )
                for result in itertools.islice(self._queues.values(), CHAIN_LENGTH_MAX)
            ]

    def answered(self, chain: Iterable[QueueResult]) -> None:
        """Forget what an answered call has carried, and keep what was added since `next_chain`."""
        with self._lock:
            for carried in chain:
                result = self._queues[carried.topic, carried.qid]
                del result.success[: len(carried.success)]
                del result.fail[: len(carried.fail)]
                if not result.success and not result.fail:
                    del self._queues[carried.topic, carried.qid]
                    continue
                for said in (result.deliveries, result.reasons):
                    for offset in said.keys() - {*result.success, *result.fail}:
                        del said[offset]
