"""Traces of messages in virtual time: which spans there are, how they hang together, and a collector that is away."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from structlog.testing import capture_logs

from tests.insides import opened_of
from tests.simulation.ward import Ward
from tests.simulation.world import AWAITS, BLOCKS, settings
from upstream.figures.tracing import SPANS, TraceSpan

TRACE, PARENT = 0x4BF92F3577B34DA6A3CE929D0E0E4736, 0x00F067AA0BA902B7
CONTEXT = {"traceparent": f"00-{TRACE:032x}-{PARENT:016x}-01", "tracestate": "shop=1"}


class Collector:
    """Takes spans, or fails as it is set."""

    def __init__(self) -> None:
        self.spans: list[TraceSpan] = []
        self.failure: Exception | None = None
        self.calls = 0

    def __call__(self, spans: Sequence[TraceSpan]) -> bool:
        self.calls += 1
        if self.failure is not None:
            raise self.failure
        self.spans += spans
        return True

    def named(self, *names: str) -> list[TraceSpan]:
        """Return the spans of these names, in order."""
        return [span for span in self.spans if span.name in names]


def traced(collector: Collector, change: Callable[[dict[str, Any]], None] = lambda _: None, **tracing: Any) -> Ward:
    """A node that traces, at a collector; the queue is the smallest."""

    def with_tracing(wanted: dict[str, Any]) -> None:
        wanted["node"]["tracing"] = {"endpoint": "http://127.0.0.1:4318", "sample": 0, "queue": 512, **tracing}
        change(wanted)

    return Ward(with_tracing, send_spans=collector)


def publish(ward: Ward, key: str = "k", **properties: str) -> None:
    """Publish one message with properties."""
    ward.send("orders", key, properties=properties)  # type: ignore[arg-type]


def test_one_trace_leads_from_the_publish_to_a_failed_attempt_and_the_ack() -> None:
    """Spans are children of the producer's, acks of their deliveries; each lasts from its beginning to its end."""
    collector = Collector()
    ward = traced(collector)
    publish(ward, **CONTEXT)
    ward.fail(1)
    ward.finish()
    ward.run(3)
    assert {span.context.trace_id for span in collector.spans} == {TRACE}
    assert {span.context.state for span in collector.spans} == {"shop=1"}
    ours = [s for s in collector.spans if s.facts.get("messaging.consumer.group.name", "by-key") == "by-key"]
    assert [s.name for s in ours if s.kind != "internal"] == [
        "publish orders",
        "deliver orders",
        "fail orders",
        "deliver orders",
        "ack orders",
    ]
    published, first, failed, second, acked = [span for span in ours if span.kind != "internal"]
    assert [span.context.span_id for span in (published, first, second)] == [PARENT] * 3
    assert (failed.context.span_id, acked.context.span_id) == (first.span_id, second.span_id)
    assert first.error.startswith("failed by ")
    assert (published.error, second.error, acked.facts["messaging.pyddmq.outcome"]) == ("", "", "succeeded")
    assert published.start_us < published.end_us <= first.start_us < first.end_us <= second.start_us < second.end_us
    assert [span.facts["messaging.pyddmq.delivery"] for span in (first, second)] == [1, 2]
    assert len({span.span_id for span in collector.spans}) == len(collector.spans)


def test_each_action_has_a_span() -> None:
    """Of plain, awaiting and blocking actions, with its answer; PullServer is the delivery."""

    def waits(wanted: dict[str, Any]) -> None:
        wanted["groups"] = settings(waits=True)["groups"]

    collector = Collector()
    ward = traced(collector, waits)
    publish(ward, **CONTEXT)
    ward.finish()
    ward.run(3)
    actions = [span for span in collector.spans if span.kind == "internal"]
    assert actions
    assert {span.context.span_id for span in actions} == {PARENT}
    assert {span.facts["messaging.pyddmq.answer"] for span in actions} == {"CONTINUE"}
    assert {span.facts["messaging.pyddmq.action"] for span in actions} == {"Json", AWAITS, BLOCKS}
    assert all(span.start_us <= span.end_us for span in actions)


def test_dead_letter_belongs_to_the_trace_of_its_message() -> None:
    """Its record has the same properties, so its publish and its deliveries show where the message went."""
    collector = Collector()
    ward = traced(collector)
    publish(ward, **CONTEXT)
    ward.fail(3)
    ward.run(3)
    assert {span.context.trace_id for span in collector.spans} == {TRACE}
    [ended] = [span for span in collector.named("end orders") if span.error]
    assert ended.facts["messaging.pyddmq.outcome"] == "dead_lettered"
    [buried] = collector.named("publish %DLQ%by-key")
    assert buried.context.span_id == PARENT


def test_message_that_times_out_ends_its_delivery() -> None:
    """The span says that no answer came, and the next delivery is another one."""
    collector = Collector()
    ward = traced(collector)
    publish(ward, **CONTEXT)
    assert ward.pull()
    ward.run(120)
    ward.finish()
    ward.run(3)
    ours = [s for s in collector.named("deliver orders") if s.facts["messaging.consumer.group.name"] == "by-key"]
    assert "no answer from" in ours[0].error
    assert ours[-1].error == ""


@pytest.mark.parametrize(
    ("tracing", "properties", "spans"),
    [
        ({"sample": 0}, {}, False),
        ({"sample": 1}, {}, True),
        ({"sample": 1, "sampleCallers": 0}, CONTEXT, False),
        ({"sample": 0}, {"traceparent": f"00-{TRACE:032x}-{PARENT:016x}-00"}, False),
        ({"sample": 1}, {"traceparent": f"00-{TRACE:032x}-{PARENT:016x}-00"}, False),
        ({"sample": 1}, {"traceparent": "00-0-0-01"}, True),
        ({"sample": 0}, {"traceparent": "00-0-0-01"}, False),
    ],
)
def test_configuration_says_which_messages_are_traced(
    tracing: dict[str, Any], properties: dict[str, str], spans: bool
) -> None:
    """Without a valid context a share of all; with one that says so a share of those; never against its flag."""
    collector = Collector()
    ward = traced(collector, **tracing)
    publish(ward, **properties)
    ward.finish()
    ward.run(3)
    assert bool(collector.spans) is spans


def test_message_without_a_context_is_traced_by_its_id() -> None:
    """All of its spans have its id as that of the trace, and no parent but a delivery."""
    collector = Collector()
    ward = traced(collector, sample=1)
    publish(ward)
    ward.finish()
    ward.run(3)
    [trace_id] = {span.context.trace_id for span in collector.spans}
    [published] = collector.named("publish orders")
    assert published.context.span_id == 0
    record = opened_of(ward.node).store.record_at(0)
    assert record is not None
    assert f"{trace_id:032X}".encode() in bytes(opened_of(ward.node).store.read(0, record.size))


def test_collector_that_is_away_holds_nothing_up_and_no_memory() -> None:
    """One batch a second is tried, the queue is bounded, losses are counted, and logged once a minute."""
    collector = Collector()
    collector.failure = ConnectionRefusedError("refused")
    ward = traced(collector)
    count = ward.node.runtime.metrics.counter
    with capture_logs() as logs:
        for number in range(300):
            publish(ward, f"k{number}", **CONTEXT)
        for _ in range(60):
            for place in ward.pull():
                ward.answer(place, success=True)
            assert len(ward.node.parts.tracing or ()) <= 512
        ward.run(30)
    assert sum(topic.lag or 0 for topic in ward.node.in_force.groups["by-key"].stats().topics) == 0
    assert collector.calls <= ward.world.loop.time() + 2
    lost = count(SPANS, "lost").value
    assert lost >= 300
    assert count(SPANS, "sent").value == 0
    lines = [line for line in logs if line["event"] == "trace_spans_lost"]
    assert 1 <= len(lines) <= 2 * (ward.world.loop.time() / 60 + 1)
    collector.failure = None
    publish(ward, **CONTEXT)
    ward.run(3)
    assert collector.named("publish orders")
    assert count(SPANS, "sent").value >= 1


def test_full_queue_drops_and_counts() -> None:
    """What a collector that never answers leaves waiting stays within `queue`."""
    collector = Collector()
    ward = traced(collector)
    assert ward.node.parts.trace_export is not None
    ward.node.parts.trace_export._is_sending = True
    for _ in range(600):
        publish(ward, **CONTEXT)
    ward.run(3)
    assert collector.calls == 0
    assert ward.node.parts.tracing is not None
    assert len(ward.node.parts.tracing) == 512
    assert ward.node.runtime.metrics.counter(SPANS, "dropped").value >= 600 - 512


def test_stop_sends_what_is_left_and_waits_two_seconds_at_most() -> None:
    """The last spans are not lost with a node that stops in order; a collector that is away does not keep it."""
    collector = Collector()
    ward = traced(collector)
    publish(ward, **CONTEXT)
    ward.world.stop()
    assert collector.named("publish orders")
    ward.start()
    collector.failure = TimeoutError("slow")
    for _ in range(5):
        publish(ward, **CONTEXT)
    began = ward.world.loop.time()
    ward.world.stop()
    assert ward.world.loop.time() - began < 4


def test_without_tracing_nothing_is_hooked() -> None:
    """No listener, no callback, no property: the ways of messages are as without the feature."""
    ward = Ward()
    assert opened_of(ward.node).store._traced is None
    assert ward.node.parts.tracing is None
    assert ward.node.parts.trace_export is None
    for group in ward.node.in_force.all_groups():
        endings = group.node.endings
        assert (endings.listeners, endings.acted, endings.failed) == ((), None, None)
