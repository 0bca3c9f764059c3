"""Dead letters of a Kafka group: copies in `<group>.DLQ`, acknowledged by Kafka before the offset moves.

A copy has the record's key, value and headers, and headers that say why and where from. What Kafka has not
acknowledged is tried again for as long as it takes, unless an operator ends the message: it keeps its place, and its
key waits. What only an operator of Kafka can change (a size, a right, a missing topic) is tried ever less often, at
last once a minute. Where a node ends between the acknowledgement and its next commit the message is delivered again,
and may become a dead letter twice.
"""

from __future__ import annotations

from broker.runtime.bundle import Runtime
from broker.runtime.metrics import declare
from broker.runtime.seams import ScheduledCall
from upstream.job import UpstreamJob
from upstream.kafka.link import NOT_SENT, KafkaFailure, KafkaProducer, KafkaRecord
from upstream.kafka.topics import own
from upstream.source import Appended

AGAIN_SECONDS = 1.0
AGAIN_SECONDS_MAX = 60.0
_PASSING = frozenset(
    [
        "FATAL",
        "MSG_TIMED_OUT",
        "NOT_ENOUGH_REPLICAS",
        "NOT_LEADER_FOR_PARTITION",
        NOT_SENT,
        "QUEUE_FULL",
        "TIMED_OUT",
        "TRANSPORT",
    ]
)
"""Refusals that end by themselves."""
FACT_PREFIX = "pyddmq."
"""Of headers that say why a message is dead, and where from."""
_REASON_BYTES = 4_000

FAILED = declare(
    "pyddmq_kafka_dead_letters_refused_total",
    "Dead letters that Kafka did not acknowledge; each is retried.",
    ("group", "code"),
)


_Spot = tuple[str, int, int]


def _spot(job: UpstreamJob) -> _Spot:
    return job.topic, job.queue_id, job.offset


class DeadLetterWriter:
    """Produces the dead letters of one group."""

    def __init__(self, producer: KafkaProducer, runtime: Runtime, group: str) -> None:
        self._producer = producer
        self._runtime = runtime
        self._group = group
        self._refused: dict[_Spot, ScheduledCall] = {}
        """Letters that were refused, with their next attempts."""

    def is_refused(self, job: UpstreamJob) -> bool:
        """Whether a job's letter was refused, and waits for its next attempt."""
        return _spot(job) in self._refused

    def withdraw(self, job: UpstreamJob) -> bool:
        """Make no other attempt; False: one is under way."""
        handle = self._refused.pop(_spot(job), None)
        if handle is not None:
            handle.cancel()
        return handle is not None

    def write(self, topic: str, job: UpstreamJob, record: KafkaRecord, reason: str, done: Appended) -> None:
        """Produce a dead letter until it is acknowledged, and call `done` then."""
        facts = {
            "reason": reason.encode()[:_REASON_BYTES],
            "group": self._group.encode(),
            "topic": record.topic.encode(),
            "partition": b"%d" % record.partition,
            "offset": b"%d" % record.offset,
            "timestamp": b"%d" % record.timestamp_ms,
            "attempts": b"%d" % job.attempts,
            "action": job.failed_action.encode(),
        }
        # What an earlier dead letter said of itself is not said of this one.
        headers = [(name, value) for name, value in record.headers if not name.startswith(FACT_PREFIX)]
        headers += [(FACT_PREFIX + name, value) for name, value in facts.items() if value]

        seconds = AGAIN_SECONDS
        waiting: ScheduledCall | None = None

        def produced(failure: KafkaFailure | None, partition: int, offset: int) -> None:
            if failure is None:
                done(None, topic, partition, offset)
            else:
                refused(failure)

        def refused(failure: KafkaFailure) -> None:
            nonlocal seconds, waiting
            self._runtime.metrics.counter(FAILED, self._group, failure.code).add()
            self._runtime.limited_log.note(
                "dead_letter_refused", self._group, topic=topic, offset=record.offset, error=str(failure)
            )
            waiting = self._refused[_spot(job)] = self._runtime.scheduler.call_later(seconds, attempt)
            if failure.code not in _PASSING:
                seconds = min(seconds * 2, AGAIN_SECONDS_MAX)

        def attempt() -> None:
            # An entry of a later generation of this member is that one's.
            if waiting is not None and self._refused.get(_spot(job)) is waiting:
                del self._refused[_spot(job)]
            if own(job.group_queue.queue).gone:
                # The present owner of the partition decides again. Another generation of this member waits for the
                # letter.
                return
            try:
                self._producer.produce(topic, None, record.key, record.value, headers, produced)
            except KafkaFailure as failure:
                refused(failure)

        attempt()
