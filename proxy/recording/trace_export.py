"""Sends the spans of a node to a collector: by OTLP over HTTP, in batches, in a thread beside the loop.

One request is under way at a time, so a collector that is away or slow holds one batch; the others wait in the queue,
which is bounded (`upstream.figures.tracing`). A batch that the collector does not take is lost, and counted.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from functools import partial

from broker.runtime.bundle import Runtime
from conf.sections.tracing import TracingConfig
from upstream.calls.seams import Threads
from upstream.figures.tracing import SPANS, TraceSpan, Tracing

BATCH_SPANS = 512
EXPORT_SECONDS = 1.0
"""How often spans are sent."""
FLUSH_SECONDS = 2.0
"""How long a stop waits for the collector at most."""

Send = Callable[[Sequence[TraceSpan]], bool]
"""Sends spans; false: the collector did not take them. Blocks, and runs in a thread."""


class TracingUnavailable(Exception):
    """The extra `otel` is not installed."""


class TraceExport:
    """See the module.

    Args:
        tracing: Has the spans.
        send: Sends a batch.
        threads: Where it is called.
        runtime: Counts and log lines.
    """

    def __init__(self, tracing: Tracing, send: Send, threads: Threads, runtime: Runtime) -> None:
        self._tracing = tracing
        self._send = send
        self._threads = threads
        self._metrics = runtime.metrics
        self._limited_log = runtime.limited_log
        self._clock = runtime.clock
        self._is_sending = False

    def export(self) -> None:
        """Begin to send what waits, unless a request is under way."""
        if self._is_sending or not len(self._tracing):
            return
        batch = self._tracing.take(BATCH_SPANS)
        self._is_sending = True
        try:
            self._threads.run(partial(self._attempt, batch), partial(self._sent, len(batch)))
        except RuntimeError as error:
            # The system has no more threads.
            self._sent(len(batch), error)

    def _attempt(self, batch: Sequence[TraceSpan]) -> object:
        try:
            return self._send(batch)
        except Exception as error:
            return error

    def _sent(self, count: int, result: object) -> None:
        self._is_sending = False
        if result is True:
            self._metrics.counter(SPANS, "sent").add(count)
            self.export()
            return
        # The rest waits for the next period: a collector that fails is not asked at once again.
        self._metrics.counter(SPANS, "lost").add(count)
        reason = str(result) if isinstance(result, Exception) else "the collector did not take them"
        self._limited_log.note("trace_spans_lost", count=count, kind="lost", reason=reason)

    async def flush(self) -> None:
        """Send what is left, for FLUSH_SECONDS at most."""
        until = self._clock.monotonic() + FLUSH_SECONDS
        while (len(self._tracing) or self._is_sending) and self._clock.monotonic() < until:
            self.export()
            await asyncio.sleep(0.02)


def otlp_sender(config: TracingConfig, instance: str) -> Send:
    """Return what sends spans to the configured collector.

    Args:
        config: `node.tracing`.
        instance: Name of the node.

    Raises:
        TracingUnavailable: The extra `otel` is not installed.
    """
    try:
        # Cold: the packages are an extra.
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import ReadableSpan
        from opentelemetry.sdk.trace.export import SpanExportResult
        from opentelemetry.sdk.util.instrumentation import InstrumentationScope
        from opentelemetry.trace import SpanContext, SpanKind, Status, StatusCode, TraceFlags, TraceState
    except ImportError as error:
        raise TracingUnavailable("needs OpenTelemetry: pip install 'pyddmq[otel]'") from error
    # Its log lines, one per request, would stand beside the node's; failures are reported by `TraceExport`.
    logging.getLogger("opentelemetry").setLevel(logging.CRITICAL + 1)
    resource = Resource({"service.name": config.service, "service.instance.id": instance})
    scope = InstrumentationScope("pyddmq")
    exporter = OTLPSpanExporter(endpoint=config.url, timeout=config.timeout / 1000)
    kinds = {"producer": SpanKind.PRODUCER, "consumer": SpanKind.CONSUMER, "internal": SpanKind.INTERNAL}

    def readable(span: TraceSpan) -> ReadableSpan:
        trace_id, parent_id, _, text = span.context
        state = TraceState.from_header([text]) if text else None
        flags = TraceFlags(TraceFlags.SAMPLED)
        return ReadableSpan(
            span.name,
            context=SpanContext(trace_id, span.span_id, is_remote=False, trace_flags=flags, trace_state=state),
            parent=SpanContext(trace_id, parent_id, is_remote=True, trace_flags=flags) if parent_id else None,
            resource=resource,
            attributes={"messaging.system": "pyddmq", **span.facts},
            kind=kinds[span.kind],
            status=Status(StatusCode.ERROR, span.error) if span.error else Status(StatusCode.UNSET),
            start_time=span.start_us * 1000,
            end_time=span.end_us * 1000,
            instrumentation_scope=scope,
        )

    def send(spans: Sequence[TraceSpan]) -> bool:
        return exporter.export([readable(each) for each in spans]) is SpanExportResult.SUCCESS

    return send
