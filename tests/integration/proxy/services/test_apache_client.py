"""A whole conversation with a running node through Apache Thrift's own library: an independent client.

Its structs are written by hand in `tests/apache_structs.py`; nothing of thriftpy2 or of the node's codec is used here.
It does what DDMQ's SDKs do (S2): pull, process, let results ride on the next pull as a chain, submit the rest.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from thrift.protocol.TBinaryProtocol import TBinaryProtocol
from thrift.protocol.TCompactProtocol import TCompactProtocol
from thrift.Thrift import TApplicationException, TMessageType
from thrift.transport.TSocket import TSocket
from thrift.transport.TTransport import TFramedTransport

from pyddmq.codes import PullCode
from tests.apache_structs import (
    ARGUMENTS,
    RESULTS,
    ConsumeResult,
    ConsumeStatsRequest,
    Context,
    DelayMessage,
    FetchRequest,
    ProducedMessage,
    PullException,
    PullRequest,
    ddmqs,
    with_field,
)
from tests.running_node import RunningNode

YAML = """
node: {segmentBytes: 1048576, maxMessageBytes: 500000}
topics:
  orders: {queues: 2}
groups:
  - group: billing
    topics:
      - {topic: orders, actions: [Async, PullServer], orderKey: KEY, retryIntervals: [5], maxPullBatchSize: 32}
"""


class ApacheClient:
    """One connection, as generated code would use it."""

    def __init__(self, address: str, protocol: Any) -> None:
        host, port = address.split(":")
        self._transport = TFramedTransport(TSocket(host, int(port)))
        self._transport.open()
        self._protocol = protocol(self._transport)
        self._seqid = 0

    def close(self) -> None:
        """Close the socket."""
        self._transport.close()

    def call(self, method: str, *, reads: Any = None, **arguments: Any) -> Any:
        """Call and return the success value; declared and application exceptions are raised.

        Args:
            method: Its name.
            reads: The result's struct, where it is to be another one.
            arguments: By name.
        """
        self._seqid += 1
        writer = self._protocol
        writer.writeMessageBegin(method, TMessageType.CALL, self._seqid)
        ARGUMENTS[method](**arguments).write(writer)
        writer.writeMessageEnd()
        self._transport.flush()
        name, kind, seqid = writer.readMessageBegin()
        assert (name, seqid) == (method, self._seqid)
        if kind == TMessageType.EXCEPTION:
            failure = TApplicationException()
            failure.read(writer)
            writer.readMessageEnd()
            raise failure
        result = (reads or RESULTS[method])()
        result.read(writer)
        writer.readMessageEnd()
        error = getattr(result, "error", None)
        if error is not None:
            raise error
        return result.success


@pytest.fixture(params=[TCompactProtocol, TBinaryProtocol], ids=["compact", "binary"])
def clients(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[ApacheClient, ApacheClient]]:
    """Give a producer's and a consumer's connection to a fresh node."""
    with RunningNode(YAML, tmp_path / "data") as node:
        producer = ApacheClient(node.producer, request.param)
        consumer = ApacheClient(node.consumer, request.param)
        yield producer, consumer
        producer.close()
        consumer.close()


def pull(consumer: ApacheClient, result: Any = None) -> Any:
    """Pull for the group, waiting long enough."""
    request = PullRequest(groupId="billing", maxBatchSize=32, maxLingerTime=3000, result=result, version="test")
    return consumer.call("pull", request=request)


def test_send_pull_fail_retry_and_ack_through_apache_thrift(clients: tuple[ApacheClient, ApacheClient]) -> None:
    """Messages keep their fields, failed ones come again in place, results ride on pulls, stats end without lag."""
    producer, consumer = clients
    first = ProducedMessage(
        topic="orders", key="a", body=b"\x00one", tags="t", properties={"p": "ü"}, hashId=0, partitionId=0
    )
    second = ProducedMessage(topic="orders", key="a", value="two", hashId=0, partitionId=1)
    third = ProducedMessage(topic="orders", key="b", body=b"three", hashId=0, partitionId=1)
    sent = producer.call("sendSync", message=first, timeout=1000)
    assert (sent.code, sent.offset, sent.qid[-1]) == (0, 0, "0")
    batch = producer.call("sendBatchSync", messages=[second, third], receipts=True)
    assert (batch.code, [receipt.offset for receipt in batch.receipts]) == (0, [0, 1])

    seen: list[tuple[str, bytes]] = []
    failed: set[bytes] = set()
    result = None
    while len(seen) < 4:
        reply = pull(consumer, result)
        done, bad = [], []
        for message in reply.messages:
            seen.append((message.key, message.value))
            if message.value == b"\x00one" and message.value not in failed:
                failed.add(message.value)
                bad.append(message.offset)
            else:
                done.append(message.offset)
        if reply.messages and reply.messages[0].value == b"\x00one":
            assert (reply.messages[0].tag, reply.messages[0].properties) == ("t", {"p": "ü"})
        result = ConsumeResult(context=reply.context, successOffsets=done, failOffsets=bad) if reply.messages else None
    assert [value for key, value in seen if key == "a"] == [b"\x00one", b"\x00one", b"two"]
    assert consumer.call("submit", result=result) is True
    [stats] = consumer.call("getConsumeStats", request=ConsumeStatsRequest(group="billing"))
    assert stats.consumeOffsets == stats.produceOffsets
    assert sum(stats.produceOffsets.values()) == 3


ADD, CANCEL = 1, 2
UUID = "14f22520-ad72-11e7-91be-6ee54da579e3"


def later(seconds: float) -> int:
    """A moment, in ms since the epoch."""
    return int((time.time() + seconds) * 1000)


def bodies(consumer: ApacheClient, count: int) -> list[bytes]:
    """Pull and ack until so many messages came."""
    found: list[bytes] = []
    result = None
    while len(found) < count:
        reply = pull(consumer, result)
        found += [message.value for message in reply.messages]
        offsets = [message.offset for message in reply.messages]
        result = ConsumeResult(context=reply.context, successOffsets=offsets) if offsets else None
    assert consumer.call("submit", result=result) is True
    return found


def test_timers_and_loops_through_apache_thrift(clients: tuple[ApacheClient, ApacheClient]) -> None:
    """What waits has a handle and no place; loops are added, delivered and cancelled with their outcomes."""
    producer, consumer = clients
    soon = producer.call("sendSync", message=ProducedMessage(topic="orders", body=b"soon", delayMs=200), timeout=1000)
    at = producer.call(
        "sendSync", message=ProducedMessage(topic="orders", body=b"at", deliverAtMs=later(3600)), timeout=1000
    )
    for sent in (soon, at):
        assert (sent.code, sent.qid, bool(sent.msgId), bool(sent.handle)) == (0, None, True, True)
    mixed = [ProducedMessage(topic="orders", body=b"now"), ProducedMessage(topic="orders", body=b"one", delayMs=200)]
    batch = producer.call("sendBatchSync", messages=mixed, receipts=True)
    assert [(bool(each.qid), bool(each.handle)) for each in batch.receipts] == [(True, False), (False, True)]
    both = ProducedMessage(topic="orders", body=b"both", delayMs=1, deliverAtMs=1)
    assert producer.call("sendSync", message=both, timeout=1000).code == 11

    second = int(time.time())
    loop = DelayMessage(
        topic="orders",
        body=b"loop",
        action=ADD,
        timestamp=second - 6,
        dmsgtype=3,
        interval=3,
        times=2,
        expire=second + 1000,
        uuid=UUID,
    )
    added = producer.call("sendDelaySync", delayMessage=loop, timeout=1000)
    assert (added.code, added.cancelOutcome) == (0, None)
    assert added.uniqDelayMsgId == f"{second - 6}-3-{second + 1000}-2-0-3-0-{UUID}"
    once = DelayMessage(
        topic="orders", body=b"once", action=ADD, timestamp=second + 3600, dmsgtype=2, uuid=UUID.replace("1", "2")
    )
    waits = producer.call("sendDelaySync", delayMessage=once, timeout=1000).uniqDelayMsgId
    assert sorted(bodies(consumer, 5)) == [b"loop", b"loop", b"now", b"one", b"soon"]
    outcomes = []
    for name in (waits, waits, added.uniqDelayMsgId, waits.replace("4", "5")):
        cancel = DelayMessage(topic="orders", body=b"-", action=CANCEL, uniqDelayMsgId=name)
        answer = producer.call("sendDelaySync", delayMessage=cancel, timeout=1000)
        outcomes.append((answer.code, answer.cancelOutcome))
    assert outcomes == [(0, 1), (0, 1), (0, 2), (0, 3)]


def test_client_that_knows_ddmqs_fields_alone_reads_everything(clients: tuple[ApacheClient, ApacheClient]) -> None:
    """Our fields are skipped by whoever does not know them, and what the node does not know is skipped by it."""
    producer, consumer = clients
    message = ProducedMessage(topic="orders", key="k", body=b"timed", delayMs=1)
    sent = producer.call("sendSync", reads=ddmqs(RESULTS["sendSync"]), message=message, timeout=1000)
    assert (sent.code, sent.msg, hasattr(sent, "handle")) == (0, "OK", False)
    batch = producer.call("sendBatchSync", reads=ddmqs(RESULTS["sendBatchSync"]), messages=[message], receipts=True)
    assert (batch.code, hasattr(batch, "receipts")) == (0, False)
    old = ddmqs(ProducedMessage)(topic="orders", key="k", body=b"old")
    assert producer.call("sendSync", message=old, timeout=1000).offset is not None
    strange = with_field(ProducedMessage, 999, "strange")(topic="orders", key="k", body=b"strange", strange="x")
    assert producer.call("sendSync", message=strange, timeout=1000).code == 0
    cancel = DelayMessage(
        topic="orders", body=b"-", action=CANCEL, uniqDelayMsgId=f"1800000000-2-1800172800-0-0-0-0-{UUID}"
    )
    answer = producer.call("sendDelaySync", reads=ddmqs(RESULTS["sendDelaySync"]), delayMessage=cancel, timeout=1000)
    assert (answer.code, hasattr(answer, "cancelOutcome")) == (0, False)
    assert sorted(bodies(consumer, 4)) == [b"old", b"strange", b"timed", b"timed"]


def test_errors_reach_apache_thrift_as_declared(clients: tuple[ApacheClient, ApacheClient]) -> None:
    """PullException, TApplicationException and result codes come out as the IDL declares them; the wire goes on."""
    producer, consumer = clients
    with pytest.raises(PullException) as refused:
        consumer.call("pull", request=PullRequest(groupId="nobody"))
    error: Any = refused.value
    assert error.code == 1
    assert "nobody" in error.message
    fetch = FetchRequest(consumerId="c", groupId="billing", cluster="")
    assert consumer.call("fetch", request=fetch).code == PullCode.NOT_LOW_LEVEL
    with pytest.raises(TApplicationException) as undecodable:
        consumer.call("pull")
    assert undecodable.value.type == TApplicationException.PROTOCOL_ERROR
    unknown = ConsumeResult(
        context=Context(groupId="billing", topic="orders", qid="none"), successOffsets=[1], failOffsets=[]
    )
    assert consumer.call("submit", result=unknown) is False
    delay = DelayMessage(topic="orders", body=b"x", action=1)
    assert producer.call("sendDelaySync", delayMessage=delay, timeout=100).code == 33
    delay = DelayMessage(topic="orders", body=b"x", action=1, timestamp=4_000_000_000, dmsgtype=2)
    assert producer.call("sendDelaySync", delayMessage=delay, timeout=100).code == 33
    ids = []
    for number, kind in enumerate((2, 3, 4)):
        delay = DelayMessage(
            topic="orders",
            body=b"\xff\x00",
            tags="t",
            action=1,
            timestamp=int(time.time()) + 3600,
            dmsgtype=kind,
            interval=3 if kind > 2 else 0,
            times=2 if kind > 2 else 0,
            expire=9_999_999_999,
            uuid=f"14f22520-ad72-11e7-91be-6ee54da579e{number}",
        )
        added = producer.call("sendDelaySync", delayMessage=delay, timeout=100)
        assert (added.code, added.cancelOutcome) == (0, None)
        ids.append(added.uniqDelayMsgId)
    for delay_id in ids:
        cancel = DelayMessage(topic="orders", body=b"x", action=2, uniqDelayMsgId=delay_id)
        answer = producer.call("sendDelaySync", delayMessage=cancel, timeout=100)
        assert (answer.code, answer.uniqDelayMsgId, answer.cancelOutcome) == (0, delay_id, 1)
    heartbeat = ProducedMessage(topic="carrera_heartbeat", body=b"x", hashId=0, partitionId=-1)
    assert producer.call("sendAsync", message=heartbeat).code == 0
