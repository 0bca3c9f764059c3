"""The health of topics that get waiting messages.

A topic whose records ended a batch is under suspicion: its messages are in no batch with others, but are tried alone,
in their order, at rising intervals, until it takes them. A message that its topic refuses for good is dead-lettered: it
goes to `<topic>.WAITING.DLQ`; of several the one that it is has to be found, one by one.
"""

from __future__ import annotations

from collections.abc import Iterator, KeysView, Mapping
from dataclasses import dataclass

from broker.runtime.bundle import Runtime
from broker.runtime.metrics import declare
from upstream.kafka.link import KafkaFailure
from upstream.kafka.waiting.batches import DEAD_LETTER_ENDING, Batch
from upstream.kafka.waiting.lanes import TransactionLane

DEAD = declare(
    "pyddmq_kafka_waiting_dead_total",
    "Waiting messages rejected by their topic, stored in <topic>.WAITING.DLQ",
    ("cluster", "topic"),
)
_TARGET_SECONDS = (0.25, 1.0, 5.0, 30.0)
"""Pauses of a target that takes nothing."""
_MISSING = frozenset({"UNKNOWN_TOPIC_OR_PART", "UNKNOWN_TOPIC", "UNKNOWN_PARTITION", "UNKNOWN_TOPIC_ID"})
_MISSING_SECONDS = 30.0
"""A topic may be missing for a moment: it is created again, or a broker that was restarted does not know it yet."""
_IDLE_SECONDS, _IDLE_ELSEWHERE_SECONDS = 1.0, 30.0
_TRANSIENT = frozenset({
    "ALL_BROKERS_DOWN", "KAFKA_STORAGE_ERROR", "LEADER_NOT_AVAILABLE", "MSG_TIMED_OUT", "NETWORK_EXCEPTION",
    "NOT_ENOUGH_REPLICAS", "NOT_ENOUGH_REPLICAS_AFTER_APPEND", "NOT_LEADER_FOR_PARTITION", "PURGE_INFLIGHT",
    "PURGE_QUEUE", "QUEUE_FULL", "REQUEST_TIMED_OUT", "TIMED_OUT", "TRANSPORT",
})  # fmt: skip


@dataclass(slots=True)
class SuspectTarget:
    """A topic that is tried alone.

    Attributes:
        since: When it was suspected, monotonic seconds.
        again_at: When it is tried again.
        attempts: Failed ones, one after the other.
        single: Messages are tried one by one.
        reason: Why its first message is to be dead-lettered; "": it is not.
        trouble: What it said.
        elsewhere: To another partition of the node.
        is_tried: A transaction of it is under way.
        lane: The last attempt's, which it took: until that is back, another one would be taken, too.
    """

    since: float
    again_at: float = 0.0
    attempts: int = 0
    single: bool = False
    reason: str = ""
    trouble: str = ""
    elsewhere: bool = False
    is_tried: bool = False
    lane: TransactionLane | None = None


class SuspectTargets:
    """Those of one partition.

    Args:
        cluster: For counts and log lines.
        runtime: Clock, counts, log.
    """

    def __init__(self, cluster: str, runtime: Runtime) -> None:
        self._cluster = cluster
        self._clock = runtime.clock
        self._metrics = runtime.metrics
        self._limited_log = runtime.limited_log
        self._targets: dict[str, SuspectTarget] = {}

    @property
    def names(self) -> KeysView[str]:
        """Which topics."""
        return self._targets.keys()

    def suspect(self, name: str, text: str, *, elsewhere: bool = False) -> bool:
        """Try a topic alone from now on; False: it is already."""
        if name in self._targets:
            return False
        self._targets[name] = SuspectTarget(self._clock.monotonic(), trouble=text, elsewhere=elsewhere)
        return True

    def has_nothing(self, name: str) -> None:
        """No message is due to a topic. One may be soon: a commit that the topic ended has the message wait for it."""
        target = self._targets[name]
        seconds = _IDLE_ELSEWHERE_SECONDS if target.elsewhere else _IDLE_SECONDS
        now = self._clock.monotonic()
        if now - target.since >= seconds:
            del self._targets[name]
        else:
            target.again_at = now + _TARGET_SECONDS[0]

    def to_try(self) -> Iterator[tuple[str, SuspectTarget]]:
        """Yield those whose turn it is."""
        now = self._clock.monotonic()
        for name, target in list(self._targets.items()):
            if target.lane is not None and target.lane.state != "asked":
                target.lane = None
            if target.again_at <= now and not target.is_tried and target.lane is None:
                yield name, target

    def next_at(self) -> float | None:
        """Return when the next one is to be tried, monotonic seconds."""
        return min(
            (each.again_at for each in self._targets.values() if not each.is_tried and each.lane is None), default=None
        )

    def troubles(self) -> list[str]:
        """Return what is wrong, as sentences."""
        found = [(name, each.trouble) for name, each in self._targets.items() if not each.elsewhere]
        return [f"topic {name} takes no waiting messages: {trouble}" for name, trouble in found]

    def trying(self, batch: Batch) -> None:
        """A batch of one topic is being written."""
        self._targets[batch.only].is_tried = True

    def committed(self, batch: Batch, *, more: bool) -> None:
        """A batch of one topic was written; `more` messages of it are due."""
        target = self._targets[batch.only]
        target.is_tried = False
        target.attempts = 0
        if batch.to_dead_letters:
            self._metrics.counter(DEAD, self._cluster, batch.only).add()
            self._limited_log.note("kafka_waiting_dead_lettered", self._cluster, topic=batch.only, error=target.reason)
            target.reason = ""
        elif not target.single or not more:
            del self._targets[batch.only]

    def took(self, batch: Batch, lane: TransactionLane) -> None:
        """A batch of one topic has lost its lane."""
        self._targets[batch.only].lane = lane

    def aborted(self, batch: Batch, failure: KafkaFailure, refused: Mapping[str, KafkaFailure]) -> list[str]:
        """Find out which topics ended a batch: each is tried alone from now on. Returns those that are new."""
        if batch.only:
            ending = DEAD_LETTER_ENDING if batch.to_dead_letters else ""
            self._failed(batch, refused.get(batch.only + ending, failure))
            return []
        return [name for name in refused if name in batch.targets and self.suspect(name, str(refused[name]))]

    def _failed(self, batch: Batch, why: KafkaFailure) -> None:
        """Give a message up that was refused alone, or try the topic again later."""
        target = self._targets[batch.only]
        target.is_tried = False
        target.trouble, target.elsewhere = str(why), False
        is_missing = why.code in _MISSING and self._clock.monotonic() - target.since < _MISSING_SECONDS
        if not (batch.to_dead_letters or is_missing or why.code in _TRANSIENT):
            # Of several the one that it is has to be found.
            if batch.fired == 1:
                target.reason = str(why)
            target.single = True
            return
        # Next time the topic itself is tried again: it may be mended.
        target.reason = ""
        target.again_at = self._clock.monotonic() + _TARGET_SECONDS[min(target.attempts, len(_TARGET_SECONDS) - 1)]
        target.attempts += 1
        self._limited_log.note("kafka_waiting_target_refuses", self._cluster, topic=batch.only, error=str(why))
