"""Traces of messages: which messages are traced, their spans, and the queue in which spans wait for the collector.

**Data.** A message is traced by the W3C context in its property `traceparent` (with `tracestate`), which its producer
put there, and which RocketMQ's block and Kafka's headers carry as they carry any property. The node never changes it.
A message without a valid one may be traced by its id: UNIQ_KEY, 16 bytes in hex, is the trace id. Both travel with a
message into retry topics and dead letters, so all that becomes of it is in one trace, and no table is kept.

**Way.** ::

    Store.append, Producer.produce  -- traced_appends, produced ->  span "publish TOPIC", until it is durable
    Step, Caller                    -- acted              -->  span "NAME TOPIC" of each action
    Latency.handed_out              -- handed_out         -->  the delivery is open
    Latency.finished, ended,        -- finished, ended,   -->  span "deliver TOPIC" since then, and below it
      Outcomes, a failed attempt         failed                "ack TOPIC", "fail TOPIC" or "end TOPIC"
    all of these                    -- add                -->  the queue  -- take -->  proxy.recording.trace_export

**States.** A delivery is open from `handed_out` to the first of `finished`, `ended` and `failed`. The next `handed_out`
of its message ends one that is still open: its client did not answer. OPEN_MAX of a group are kept, the latest.

A span is sampled by its trace id alone, so that all nodes decide alike. Nothing here waits or raises: what the queue
has no room for is dropped, and counted. All of it runs in the loop's thread; without `node.tracing` none of it runs.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import NamedTuple
from zlib import crc32

from broker.format.properties import find_property
from broker.runtime.bundle import Runtime
from broker.runtime.metrics import declare
from conf.sections.tracing import TRACE_ID, TracingConfig
from pyddmq.actions import BodyUnprocessable, MessageUnreadable, Status
from upstream.calls.user_code import described
from upstream.figures.endings import MessageEnding, ended_jobs
from upstream.job import DeliveredBatch, UpstreamJob

SPANS = declare(
    "pyddmq_trace_spans_total",
    "Spans by outcome: sent, lost (the collector did not take them), dropped (the queue was full)",
    ("outcome",),
)
OPEN_MAX = 10_000
"""Open deliveries of one group that are known."""

_CONTEXT = re.compile(rb"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-[\x20-\x7e]{0,200})?")
_STATE = re.compile(rb"[\x20-\x7e]{1,512}")
_ID = re.compile(rb"[0-9A-Fa-f]{32}")

Value = str | int


class TraceContext(NamedTuple):
    """Where spans of a message belong.

    Attributes:
        trace_id: 128 bits.
        span_id: The producer's span, 64 bits; 0: the message has none.
        sampled: Its producer records the trace.
        state: `tracestate`, as given.
    """

    trace_id: int
    span_id: int
    sampled: bool
    state: str = ""


class TraceSpan(NamedTuple):
    """What happened to a message; times in microseconds of the wall clock.

    Attributes:
        name: Operation and topic.
        kind: `producer`, `consumer` or `internal`.
        context: Its trace; the parent is the span there.
        span_id: Its own.
        start_us, end_us: When.
        facts: Attributes.
        error: Why it failed; "" if it did not.
    """

    name: str
    kind: str
    context: TraceContext
    span_id: int
    start_us: int
    end_us: int
    facts: Mapping[str, Value]
    error: str = ""


def context_in(traceparent: bytes | None, tracestate: bytes | None = None) -> TraceContext | None:
    """Return the context that a client gave; None for anything that is not of the form which W3C describes.

    A later version than 00 may have more behind the flags, which is not looked at.
    """
    found = None if traceparent is None else _CONTEXT.fullmatch(traceparent)
    if found is None:
        return None
    version, trace_id, span_id, flags = found[1], int(found[2], 16), int(found[3], 16), int(found[4], 16)
    if version == b"ff" or (version == b"00" and found[5] is not None) or not trace_id or not span_id:
        return None
    state = tracestate.decode() if tracestate is not None and _STATE.fullmatch(tracestate) else ""
    return TraceContext(trace_id, span_id, bool(flags & 1), state)


def context_of_id(unique_key: bytes) -> TraceContext:
    """Return the context of a message without one: its id, in RocketMQ's form, is that of the trace."""
    trace_id = int(unique_key, 16) if _ID.fullmatch(unique_key) else 0
    return TraceContext(trace_id or int.from_bytes(blake2b(unique_key, digest_size=16).digest()) or 1, 0, False)


def trace_id_of(properties: Mapping[str, str], unique_key: str, tracing: Tracing | None) -> str | None:
    """Return the trace of a stored message, as viewers write it: its producer's, or the node's own of a sampled one."""
    context = context_in(properties.get("traceparent", "").encode())
    if context is None and tracing is not None:
        context = tracing.sampled(None, None, unique_key.encode())
    return None if context is None else f"{context.trace_id:032x}"


@dataclass(slots=True)
class _Open:
    context: TraceContext
    span_id: int
    start_us: int
    facts: dict[str, Value]


class Tracing:
    """Makes the spans of one node, and keeps them until they are sent.

    Args:
        config: `node.tracing`.
        runtime: The node's.
    """

    def __init__(self, config: TracingConfig, runtime: Runtime) -> None:
        self.config = config
        self.clock = runtime.clock
        self._spans: deque[TraceSpan] = deque()
        self._bits = runtime.random.getrandbits
        self._dropped = runtime.metrics.counter(SPANS, "dropped")
        self._limited_log = runtime.limited_log

    # The queue

    def __len__(self) -> int:
        return len(self._spans)

    def add(self, span: TraceSpan) -> None:
        """Keep a span until it is sent; a full queue drops it."""
        if len(self._spans) < self.config.queue:
            self._spans.append(span)
        else:
            self._dropped.value += 1
            self._limited_log.note("trace_spans_lost", kind="dropped", reason="the queue is full")

    def take(self, count: int) -> list[TraceSpan]:
        """Return the oldest spans, which are the caller's from here on."""
        return [self._spans.popleft() for _ in range(min(count, len(self._spans)))]

    # Which messages

    def sampled(self, traceparent: bytes | None, tracestate: bytes | None, unique_key: bytes) -> TraceContext | None:
        """Return the context of a message that is traced; None of all others."""
        context = context_in(traceparent, tracestate)
        if context is None:
            if not unique_key or not self.config.sample:
                return None
            context, share = context_of_id(unique_key), self.config.sample
        elif not context.sampled:
            return None
        else:
            share = self.config.sample_callers
        return context if crc32(context.trace_id.to_bytes(16)) < share * 2**32 else None

    def in_block(self, block: bytes, unique_key: bytes = b"") -> TraceContext | None:
        """Likewise, by a block of properties."""
        unique_key = unique_key or find_property(block, b"UNIQ_KEY") or b""
        return self.sampled(find_property(block, b"traceparent"), find_property(block, b"tracestate"), unique_key)

    def in_job(self, job: UpstreamJob) -> TraceContext | None:
        """Likewise, of a job; None if its message cannot be read. The job keeps nothing of it."""
        located = job.subscription.slices([job])
        if located is not None:
            view, _, _, start, end = located[0][1]
            return self.in_block(bytes(view[start:end]))
        try:
            properties = job.subscription.load(job).properties
        except (MessageUnreadable, BodyUnprocessable):
            return None
        names = ("traceparent", "tracestate", "UNIQ_KEY")
        parent, state, key = [properties[name].encode() if name in properties else None for name in names]
        return self.sampled(parent, state, key or b"")

    def link(self, trace_id: str) -> str | None:
        """Return the address of a trace in the configured viewer."""
        return None if self.config.link is None else self.config.link.replace(TRACE_ID, trace_id)

    # Spans

    def new_id(self) -> int:
        """Draw the id of a span."""
        return self._bits(64) or 1

    def produced(self, topic: str, headers: Sequence[tuple[str, bytes | None]]) -> Published | None:
        """Begin the span of a record that is sent to Kafka; None if it is not traced."""
        given = dict(headers)
        context = self.sampled(given.get("traceparent"), given.get("tracestate"), given.get("UNIQ_KEY") or b"")
        if context is None:
            return None
        since_us = self.clock.wall_us()

        def ended(error: Exception | None, partition: int, offset: int) -> None:
            facts: dict[str, Value] = {
                "messaging.destination.name": topic,
                "messaging.destination.partition.id": str(partition),
                "messaging.pyddmq.offset": offset,
            }
            self.published(context, topic, since_us, facts, error)

        return ended

    def published(
        self, context: TraceContext, topic: str, since_us: int, facts: dict[str, Value], error: Exception | None
    ) -> None:
        """Make the span of a message that is published by now, or has failed to be."""
        facts["messaging.operation.type"] = "send"
        why = "" if error is None else str(error)
        self.add(
            TraceSpan(
                f"publish {topic}", "producer", context, self.new_id(), since_us, self.clock.wall_us(), facts, why
            )
        )


Published = Callable[[Exception | None, int, int], None]
"""Ends the span of a record of Kafka: why it failed, partition, offset."""


class GroupTraces:
    """The spans of one group: an `EndingListener`, and what else its messages pass.

    Args:
        group: Its name.
        tracing: The node's.
    """

    def __init__(self, group: str, tracing: Tracing) -> None:
        self._group = group
        self._tracing = tracing
        self._clock = tracing.clock
        self._open: dict[tuple[str, int, int], _Open] = {}

    def acted(self, action: str, jobs: Sequence[UpstreamJob], answers: Sequence[object], since: float) -> None:
        """Make the spans of an action that ended now, and began at a monotonic moment."""
        now_us = self._clock.wall_us()
        start_us = now_us - round((self._clock.monotonic() - since) * 1_000_000)
        for job, answer in zip(jobs, answers, strict=True):
            context = self._tracing.in_job(job)
            if context is None:
                continue
            facts = self._facts(job, "process")
            facts["messaging.pyddmq.action"] = action
            error = ""
            if isinstance(answer, Status):
                facts["messaging.pyddmq.answer"] = answer.name
            if isinstance(answer, Exception) or answer is Status.FAIL:
                error = described(answer) if isinstance(answer, Exception) else "FAIL"
            span_id = self._tracing.new_id()
            self._tracing.add(
                TraceSpan(f"{action} {job.topic}", "internal", context, span_id, start_us, now_us, facts, error[:300])
            )

    def handed_out(self, delivery: DeliveredBatch) -> None:
        """Open the deliveries of a batch that goes to a client."""
        for job in delivery.jobs or ():
            context = self._tracing.in_job(job)
            if context is None:
                continue
            if (job.topic, job.queue_id, job.offset) in self._open:
                self._end(job, "fail", "unanswered", "not answered")
            facts = self._facts(job, "receive")
            facts["client.address"] = delivery.holder.address
            facts["messaging.pyddmq.delivery"] = job.deliveries
            if delivery.holder.client:
                facts["messaging.client.id"] = delivery.holder.client
            if len(self._open) >= OPEN_MAX:
                del self._open[next(iter(self._open))]
            opened = _Open(context, self._tracing.new_id(), self._clock.wall_us(), facts)
            self._open[job.topic, job.queue_id, job.offset] = opened

    def finished(self, delivery: DeliveredBatch, offsets: Sequence[int]) -> None:
        """End the deliveries of messages that a client finished."""
        if self._open:
            for job in ended_jobs(delivery, offsets):
                if (job.topic, job.queue_id, job.offset) in self._open:
                    self._end(job, "ack", "succeeded")

    def ended(self, job: UpstreamJob, ending: MessageEnding) -> None:
        """End a message that ended in another way."""
        error = "" if ending is MessageEnding.SUCCEEDED or job.history is None else job.history.reason
        self._end(job, "ack" if ending is MessageEnding.SUCCEEDED else "end", ending.name.lower(), error)

    def failed(self, job: UpstreamJob, reason: str) -> None:
        """End an attempt that failed; the message comes again, or its end follows."""
        self._end(job, "fail", "failed", reason)

    def _end(self, job: UpstreamJob, name: str, outcome: str, error: str = "") -> None:
        opened = self._open.pop((job.topic, job.queue_id, job.offset), None)
        context = self._tracing.in_job(job) if opened is None else opened.context
        if context is None:
            return
        now_us = self._clock.wall_us()
        if opened is not None:
            self._tracing.add(
                TraceSpan(
                    f"deliver {job.topic}",
                    "consumer",
                    context,
                    opened.span_id,
                    opened.start_us,
                    now_us,
                    opened.facts,
                    error[:300],
                )
            )
            context = context._replace(span_id=opened.span_id)
        facts = self._facts(job, "settle")
        facts["messaging.pyddmq.outcome"] = outcome
        span_id = self._tracing.new_id()
        self._tracing.add(
            TraceSpan(f"{name} {job.topic}", "consumer", context, span_id, now_us, now_us, facts, error[:300])
        )

    def _facts(self, job: UpstreamJob, operation: str) -> dict[str, Value]:
        return {
            "messaging.operation.type": operation,
            "messaging.destination.name": job.topic,
            "messaging.destination.partition.id": str(job.queue_id),
            "messaging.consumer.group.name": self._group,
            "messaging.pyddmq.offset": job.offset,
        }
