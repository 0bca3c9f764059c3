"""Calls with results for a Kafka group that does not know its partitions yet: held until it does (D56).

A client sends unanswered results again to a node that was restarted. By the time when they arrive the cluster may not
have given the node its partitions: an answer would end the results, and the messages would be delivered again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import NamedTuple

from broker.runtime.bundle import Runtime
from broker.runtime.later import Later
from proxy.port.reply_slot import ReplySlot
from proxy.services.results.held_calls import HeldCalls
from proxy.wire.values import ConsumeResult
from upstream.delivery.group import ConsumerGroup

LOOK_SECONDS = 0.05


class _Waiting(NamedTuple):
    slot: ReplySlot
    results: Sequence[ConsumeResult]


class PartitionWaits:
    """The calls of one node that wait for partitions."""

    def __init__(
        self, groups: Mapping[str, ConsumerGroup], runtime: Runtime, resume: Callable[[list[ReplySlot]], None]
    ) -> None:
        """Set up; `resume` takes the calls whose wait has ended."""
        self._groups = groups
        self._resume = resume
        self._calls = HeldCalls(runtime)
        self._waiting: list[_Waiting] = []
        self._looks = Later(runtime.scheduler, self._look)

    def needed(self, results: Collection[ConsumeResult]) -> bool:
        """Whether results name a queue that its group may still get."""
        needed = False
        for each in results:
            group = None if each.group is None else self._groups.get(each.group)
            if group is None or (awaits := group.node.awaits_partitions) is None or not (each.success or each.fail):
                continue
            if not group.has_queue(each.topic, each.qid) and awaits():
                # A group that no client pulls from gets no partitions.
                group.note_client()
                needed = True
        return needed

    def hold(self, slot: ReplySlot, results: Sequence[ConsumeResult]) -> None:
        """Keep a call unanswered."""
        if self._calls.hold(slot):
            self._add(slot, results)

    def hold_again(self, slot: ReplySlot, results: Sequence[ConsumeResult]) -> None:
        """Likewise one that was held before."""
        self._calls.take(slot)
        self._add(slot, results)

    def _add(self, slot: ReplySlot, results: Sequence[ConsumeResult]) -> None:
        self._waiting.append(_Waiting(slot, results))
        self._looks.unless_due(LOOK_SECONDS)

    def _look(self) -> None:
        waiting, self._waiting = self._waiting, []
        ready = []
        for each in waiting:
            if self.needed(each.results):
                self._waiting.append(each)
            else:
                ready.append(each.slot)
        if ready:
            self._calls.let_go(ready)
            self._resume(ready)
        if self._waiting:
            self._looks.unless_due(LOOK_SECONDS)
