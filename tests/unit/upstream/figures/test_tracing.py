"""Trace contexts: what a client may give, and which messages are chosen."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.runtime.bundle import runtime_of
from conf.sections.tracing import TracingConfig
from pyddmq.testing import SimDisk
from pyddmq.testing.manual_time import ManualClock, ManualScheduler
from tests.fakes.memory.producer import Answer, MemoryProducer
from tests.insides import most_kept
from upstream.figures.tracing import TraceContext, TraceSpan, Tracing, context_in, context_of_id, trace_id_of
from upstream.kafka.lasting_producer import LastingProducer
from upstream.kafka.link import KafkaFailure

TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
GOOD = f"00-{TRACE}-{PARENT}-01"


def tracing_of(**wanted: object) -> Tracing:
    """A node's, in manual time."""
    config = TracingConfig.model_validate({"endpoint": "http://127.0.0.1:4318", **wanted})
    return Tracing(config, runtime_of(SimDisk(), ManualClock()))


def test_context_of_w3c_is_taken() -> None:
    """Ids, the sampled flag, and `tracestate` as it is; a later version may have more behind the flags."""
    assert context_in(GOOD.encode(), b"a=1,b=2") == TraceContext(int(TRACE, 16), int(PARENT, 16), True, "a=1,b=2")
    assert context_in(f"00-{TRACE}-{PARENT}-02".encode()) == TraceContext(int(TRACE, 16), int(PARENT, 16), False)
    assert context_in(f"cc-{TRACE}-{PARENT}-01-what-the-future-brings".encode()) is not None


@pytest.mark.parametrize(
    "text",
    [
        "",
        "01",
        GOOD[:-1],
        GOOD + "0",
        GOOD + "-more",
        GOOD.upper().replace("00-", "00-", 1),
        f"ff-{TRACE}-{PARENT}-01",
        f"00-{'0' * 32}-{PARENT}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"00-{TRACE}-{PARENT}-0x",
        f" {GOOD}",
        f"{GOOD}\n",
        f"cc-{TRACE}-{PARENT}-01-{'x' * 201}",
        "00-" + "٣" * 32 + f"-{PARENT}-01",
        "0" * 30_000,
    ],
)
def test_anything_else_is_no_context(text: str) -> None:
    """Of another length or form, of zeros, of the forbidden version: as if nothing had been given."""
    assert context_in(text.encode()) is None


@pytest.mark.parametrize("state", [b"", b"a=\n", b"a=\xff", b"x" * 513])
def test_bad_state_is_left_out(state: bytes) -> None:
    """The context stays."""
    assert context_in(GOOD.encode(), state) == TraceContext(int(TRACE, 16), int(PARENT, 16), True)


@given(st.binary(max_size=80), st.binary(max_size=40))
def test_no_bytes_of_a_client_raise(parent: bytes, key: bytes) -> None:
    """Neither as a context nor as an id; what comes of an id is a valid trace id."""
    context_in(parent, parent)
    assert 0 < context_of_id(key).trace_id < 2**128


def test_share_of_messages_is_chosen_by_their_ids() -> None:
    """The same ones on each node, and about so many as the share says."""
    one, other = tracing_of(sample=0.25), tracing_of(sample=0.25)
    keys = [b"%032X" % (0x7F000001 << 96 | number) for number in range(4000)]
    chosen = [key for key in keys if one.sampled(None, None, key)]
    assert chosen == [key for key in keys if other.sampled(None, None, key)]
    assert 800 <= len(chosen) <= 1200


def test_trace_of_a_message_is_shown() -> None:
    """Its producer's, or its id where the node traces it; none of any other message."""
    key = TRACE.upper()
    assert trace_id_of({"traceparent": GOOD}, key, None) == TRACE
    assert trace_id_of({}, key, None) is None
    assert trace_id_of({}, key, tracing_of(sample=0)) is None
    assert trace_id_of({"traceparent": "x"}, key, tracing_of(sample=1)) == TRACE
    link = "https://traces.example.com/trace/{traceId}?x=1"
    assert tracing_of(link=link).link(TRACE) == f"https://traces.example.com/trace/{TRACE}?x=1"


def test_record_of_kafka_has_a_span_and_can_be_withdrawn() -> None:
    """The headers have the context; what is withdrawn has no span; a failed one says why."""
    clock = ManualClock()
    scheduler = ManualScheduler(clock)
    runtime = runtime_of(SimDisk(), clock, scheduler=scheduler, random=Random(1))
    tracing = Tracing(TracingConfig.model_validate({"endpoint": "http://127.0.0.1:4318"}), runtime)
    made: list[MemoryProducer] = []

    def make(_: object) -> MemoryProducer:
        made.append(MemoryProducer(scheduler, {"t": 1}))
        return made[-1]

    producer = LastingProducer("main", make, runtime, tracing)
    ended: list[tuple[KafkaFailure | None, int, int]] = []

    def done(failure: KafkaFailure | None, partition: int, offset: int) -> None:
        ended.append((failure, partition, offset))

    headers = (("traceparent", GOOD.encode()), ("other", None))
    producer.produce("t", 0, None, b"x", headers, done)
    producer.produce("t", 0, None, b"x", (), done)
    scheduler.advance(5)
    assert [failure for failure, _, _ in ended] == [None, None]
    [span] = tracing.take(10)
    assert (span.name, span.context.span_id, span.error) == ("publish t", int(PARENT, 16), "")
    assert span.facts["messaging.pyddmq.offset"] == ended[0][2]
    failure = KafkaFailure("QUEUE_FULL", "the queue is full")
    made[0].answer = lambda *_: Answer(failure=failure)
    producer.produce("t", 0, None, b"x", headers, done)
    scheduler.advance(5)
    [span] = tracing.take(10)
    assert span.error == str(failure)
    made[0].answer = lambda *_: Answer(failure=failure, refused=True)
    with pytest.raises(KafkaFailure):
        producer.produce("t", 0, None, b"x", headers, done)
    made[0].answer = lambda *_: Answer(unsent=True)
    producer.produce("t", 0, None, b"x", headers, done)
    assert producer.withdraw(done)
    scheduler.advance(60)
    assert not tracing.take(10)
    assert most_kept(producer) == 0


def test_queue_is_bounded() -> None:
    """What is above it is dropped, and the oldest are taken first."""
    tracing = tracing_of(queue=512)
    context = TraceContext(1, 0, True)
    for number in range(600):
        tracing.add(TraceSpan(str(number), "internal", context, 1, 0, 0, {}))
    assert len(tracing) == 512
    assert [span.name for span in tracing.take(2)] == ["0", "1"]
    assert len(tracing.take(1000)) == 510
