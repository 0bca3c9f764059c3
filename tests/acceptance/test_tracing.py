"""One trace from the Python client's publish to the ack, as a collector receives it: OTLP over HTTP, in protobuf."""

from __future__ import annotations

import gzip
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from conf.sections.tracing import TracingConfig
from proxy.process.exit_codes import ExitCode
from proxy.recording.trace_export import TracingUnavailable, otlp_sender
from pyddmq import Consumer, Producer
from tests.acceptance.conftest import StartNode, command
from tests.conftest import need_module
from tests.patient import LINGER_MS, until
from upstream.figures.tracing import TraceContext, TraceSpan

TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
CONFIGURATION = """
node:
  tracing:
    endpoint: http://127.0.0.1:{port}
    service: shop-broker
    sample: 0
    link: "https://traces.example.com/trace/{{traceId}}"
topics:
  orders: {{queues: 2}}
groups:
  - group: billing
    topics:
      - {{topic: orders, orderKey: KEY, actions: [Json, Async, PullServer]}}
"""


class SpanCollector:
    """A collector: decodes what is posted to /v1/traces, and answers with a status."""

    def __init__(self) -> None:
        service = need_module("opentelemetry.proto.collector.trace.v1.trace_service_pb2", "make setup")
        self.resources: list[dict[str, Any]] = []
        self.spans: list[Any] = []
        self.status = 200
        self.paths: set[str] = set()
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                if self.headers.get("Content-Encoding") == "gzip":
                    body = gzip.decompress(body)
                assert self.headers["Content-Type"] == "application/x-protobuf"
                collector.paths.add(self.path)
                if collector.status == 200:
                    request = service.ExportTraceServiceRequest.FromString(body)
                    for each in request.resource_spans:
                        collector.resources.append(facts_of(each.resource))
                        collector.spans += [span for scope in each.scope_spans for span in scope.spans]
                self.send_response(collector.status)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_: object) -> None:
                """Say nothing."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True).start()

    @property
    def port(self) -> int:
        """Where it listens."""
        return self.server.server_port

    def named(self, name: str) -> Any:
        """Return the only span of a name."""
        [span] = [each for each in self.spans if each.name == name]
        return span


def facts_of(holder: Any) -> dict[str, Any]:
    """Return the attributes of a span or resource."""
    return {each.key: getattr(each.value, each.value.WhichOneof("value")) for each in holder.attributes}


@pytest.fixture
def collector() -> Iterator[SpanCollector]:
    """A collector, until the test ends."""
    made = SpanCollector()
    yield made
    made.server.shutdown()
    made.server.server_close()


def test_one_trace_leads_from_the_publish_of_the_client_to_action_and_ack(
    collector: SpanCollector, start_node: StartNode
) -> None:
    """All spans are of the producer's trace, and the message names that trace and its address."""
    node = start_node(configuration=CONFIGURATION.format(port=collector.port))
    context = {"traceparent": f"00-{TRACE}-{PARENT}-01", "tracestate": "shop=1"}
    with Producer(node.ready["producer"]) as producer:
        receipt = producer.send("orders", b'{"id": 7}', key="k", properties=context)
    with Consumer(node.ready["consumer"], "billing", linger_ms=LINGER_MS) as consumer:
        message = next(iter(consumer))
        assert message.properties["traceparent"] == context["traceparent"]
        consumer.ack(message)
    until(lambda: len(collector.spans) >= 4, "there are four spans")
    assert {span.trace_id.hex() for span in collector.spans} == {TRACE}
    published, acted = collector.named("publish orders"), collector.named("Json orders")
    delivered, acked = collector.named("deliver orders"), collector.named("ack orders")
    assert {span.parent_span_id.hex() for span in (published, acted, delivered)} == {PARENT}
    assert acked.parent_span_id == delivered.span_id
    assert (published.kind, delivered.kind, acted.kind) == (4, 5, 1)
    assert published.trace_state == "shop=1"
    assert facts_of(delivered) == {
        **facts_of(delivered),
        "messaging.system": "pyddmq",
        "messaging.destination.name": "orders",
        "messaging.consumer.group.name": "billing",
        "messaging.pyddmq.offset": receipt.offset,
    }
    assert published.start_time_unix_nano <= acted.start_time_unix_nano <= acked.end_time_unix_nano
    assert collector.resources[0]["service.name"] == "shop-broker"
    assert collector.paths == {"/v1/traces"}
    done = command("messages", "query", "orders", "--json", *node.admin())
    [shown] = done.json_lines()
    assert (shown["traceId"], shown["traceLink"]) == (TRACE, f"https://traces.example.com/trace/{TRACE}")
    assert node.stop() == ExitCode.OK
    assert "Traceback" not in node.log_path.read_text()


def test_collector_that_refuses_is_reported_by_the_node_alone(collector: SpanCollector, start_node: StartNode) -> None:
    """The library writes no lines of its own beside the node's JSON, and messages go their way."""
    collector.status = 400
    node = start_node(configuration=CONFIGURATION.format(port=collector.port))
    with Producer(node.ready["producer"]) as producer:
        producer.send("orders", b"{}", key="k", properties={"traceparent": f"00-{TRACE}-{PARENT}-01"})
    until(lambda: "trace_spans_lost" in node.log_path.read_text(), "the loss is logged")
    assert node.stop() == ExitCode.OK
    said = node.log_path.read_text()
    assert all(line.startswith("{") for line in said.splitlines())
    assert "Failed to export" not in said


def test_sender_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the extra a node that is to trace does not start."""
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.trace", None)
    config = TracingConfig.model_validate({"endpoint": "http://127.0.0.1:1"})
    with pytest.raises(TracingUnavailable, match=r"pip install 'pyddmq\[otel\]'"):
        otlp_sender(config, "broker-0")


def test_failed_span_says_why(collector: SpanCollector) -> None:
    """Status ERROR with the reason; a root span has no parent."""
    config = TracingConfig.model_validate({"endpoint": f"http://127.0.0.1:{collector.port}/v1/traces"})
    send = otlp_sender(config, "broker-0")
    assert send([TraceSpan("fail orders", "consumer", TraceContext(1, 0, True), 2, 3, 4, {"n": 5}, "no reply")])
    span = collector.named("fail orders")
    assert (span.status.code, span.status.message) == (2, "no reply")
    assert (span.parent_span_id, span.start_time_unix_nano, span.end_time_unix_nano) == (b"", 3000, 4000)
