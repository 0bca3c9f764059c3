"""Producers that number their messages, against a node: what is sent again is answered and not stored again (D39)."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pyddmq.codes import Repeat, ResultCode
from tests.insides import opened_of
from tests.integration.ddmq_tools import NODE, Peer
from tests.integration.keyed_tools import NAME, key
from tests.running_node import RunningNode
from tests.simulation.wire import producer_idl

TOPICS = """
topics: {orders: {queues: 2}, notes: {queues: 1}, slow: {queues: 1, maxTps: 1}}
groups:
  - group: billing
    topics: [{topic: orders}, {topic: notes}, {topic: slow}]
"""
FAR_MS = 4_000_000_000_000
TOMORROW_S = int(time.time()) + 86_400
UUID = "14f22520-ad72-11e7-91be-6ee54da579e3"


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Where the node's data is."""
    return tmp_path / "data"


def run(data: Path, more: str = "") -> RunningNode:
    """A node on that data."""
    return RunningNode(NODE % f", timerMaxDelaySec: 3153600000{more}" + TOPICS, data)


@pytest.fixture
def node(data: Path) -> Iterator[RunningNode]:
    """A running node."""
    with run(data) as running:
        yield running


def message(number: int, body: bytes = b"x", *, name: bytes = NAME, topic: str = "orders", **more: Any) -> Any:
    """A message of the producer with a number, from 0 on."""
    return producer_idl.Message(topic=topic, body=body, uniqKey=key(number, name).decode(), **more)


def send(peer: Peer, number: int, body: bytes = b"x", **more: Any) -> Any:
    """Send one; the Result."""
    return peer.call("sendSync", message=message(number, body, **more), timeout=1000).value


def batch(peer: Peer, messages: list[Any], *, receipts: bool = True) -> Any:
    """Send some together; the Result."""
    return peer.call("sendBatchSync", messages=messages, receipts=receipts).value


def stored(node: RunningNode) -> int:
    """Messages of all topics, those that wait included."""
    return node.call(
        lambda: sum(
            queue.max_offset for topic in opened_of(node.node).store.topics.values() for queue in topic.queues
        )
    )  # fmt: skip


def facts(result: Any) -> tuple[Any, ...]:
    """What a receipt says of the place."""
    return result.msgId, result.qid, result.offset, result.handle


def test_message_that_comes_again_gets_its_first_receipt(node: RunningNode) -> None:
    """Over the same connection and another one; the id is the producer's own, and one message is stored."""
    with Peer(node.producer) as peer, Peer(node.producer) as other:
        first = send(peer, 0, key="k")
        again = [send(each, 0, key="k") for each in (peer, other)]
        assert (first.code, first.repeat, first.msgId) == (0, None, key(0).decode())
        for result in again:
            assert (result.code, result.repeat) == (0, Repeat.FIRST_RECEIPT)
            assert facts(result) == facts(first)
        following = send(peer, 1, key="k")
        assert (following.code, following.repeat, following.offset) == (0, None, first.offset + 1)
    assert stored(node) == 2
    assert node.node.runtime.metrics.value("pyddmq_sends_repeated_total", "first_receipt") == 2
    assert node.node.runtime.metrics.value("pyddmq_messages_published_total", "orders") == 2


def test_two_that_come_in_one_turn_are_one_message(node: RunningNode) -> None:
    """The second arrives before the first is durable: it is answered like it, when that is."""
    with Peer(node.producer) as peer:
        frames = [peer.frame("sendSync", message=message(0), timeout=1000) for _ in range(3)]
        peer.socket.sendall(b"".join(frames))
        results = [peer.reply("sendSync").value for _ in frames]
    assert [result.code for result in results] == [0, 0, 0]
    assert sorted(result.repeat or 0 for result in results) == [0, 1, 1]
    assert len({facts(result) for result in results}) == 1
    assert stored(node) == 1


@pytest.mark.parametrize("receipts", [True, False])
def test_batch_that_comes_again_gets_its_first_receipts(node: RunningNode, receipts: bool) -> None:
    """All of it, in order, over two topics."""
    messages = [message(number, b"%d" % number, topic="orders" if number % 3 else "notes") for number in range(40)]
    with Peer(node.producer) as peer:
        first = batch(peer, messages, receipts=receipts)
        again = batch(peer, messages, receipts=receipts)
        assert (first.code, again.code, first.repeat, again.repeat) == (0, 0, None, Repeat.FIRST_RECEIPT)
        if receipts:
            assert [facts(each) for each in again.receipts] == [facts(each) for each in first.receipts]
            assert [each.msgId for each in first.receipts] == [key(number).decode() for number in range(40)]
        else:
            assert again.receipts is None
        part = batch(peer, messages[7:12])
        assert (part.code, part.repeat, len(part.receipts)) == (0, Repeat.FIRST_RECEIPT, 5)
    assert stored(node) == 40


def test_messages_that_wait_are_known_too(node: RunningNode) -> None:
    """A level and a timer: the handle comes again, and no queue and offset."""
    with Peer(node.producer) as peer:
        waits: list[dict[str, Any]] = [{"delayLevel": 18}, {"deliverAtMs": FAR_MS}, {"delayMs": 3_600_000}]
        first = [send(peer, number, **wait) for number, wait in enumerate(waits)]
        again = [send(peer, number, **wait) for number, wait in enumerate(waits)]
        assert [facts(each) for each in again] == [facts(each) for each in first]
        assert [each.repeat for each in again] == [1, 1, 1]
        assert [bool(each.handle) for each in first] == [False, True, True]
        mixed = [message(3), message(4, deliverAtMs=FAR_MS), message(5, delayLevel=18)]
        one, two = batch(peer, mixed), batch(peer, mixed)
        assert [facts(each) for each in two.receipts] == [facts(each) for each in one.receipts]
    assert stored(node) == 6


def test_halves_are_known_too(node: RunningNode) -> None:
    """The handle comes again and decides the one half that there is."""
    with Peer(node.producer) as peer:
        ask = {"message": message(0, key="k"), "producerGroup": "shop", "timeout": 1000}
        first, again = (peer.call("sendHalfSync", **ask).value for _ in range(2))
        assert (first.code, again.code, first.repeat, again.repeat) == (0, 0, None, 1)
        assert (again.handle, again.transactionId, again.offset, again.key) == (
            first.handle, first.transactionId, first.offset, "k",
        )  # fmt: skip
        assert first.transactionId == key(0).decode()
    assert stored(node) == 1


@pytest.mark.parametrize("loop", [False, True])
def test_delayed_messages_of_ddmq_and_loops_are_known_too(node: RunningNode, loop: bool) -> None:
    """sendDelaySync: the id comes again; also when the node was started anew meanwhile, which forgets recent adds."""
    kind = {"dmsgtype": 3, "interval": 60, "times": 5, "expire": 9_999_999_999} if loop else {"dmsgtype": 2, "times": 0}
    delayed = producer_idl.DelayMessage(
        topic="orders",
        body=b"x",
        tags="t",
        action=1,
        timestamp=TOMORROW_S,
        uuid=UUID,
        uniqKey=key(0).decode(),
        **kind,
    )
    with Peer(node.producer) as peer:
        first, again = (peer.call("sendDelaySync", delayMessage=delayed, timeout=1000).value for _ in range(2))
        assert (first.code, again.code, first.repeat, again.repeat) == (0, 0, None, 1)
        assert first.uniqDelayMsgId == again.uniqDelayMsgId != ""
        assert send(peer, 1).code == 0
    assert stored(node) == 2
    node.kill()
    with run(Path(node.config.node.data)) as other, Peer(other.producer) as peer:
        again = peer.call("sendDelaySync", delayMessage=delayed, timeout=1000).value
        assert (again.code, again.repeat, again.uniqDelayMsgId) == (0, 1, first.uniqDelayMsgId)
        assert stored(other) == 2


def test_message_above_a_gap_is_refused_until_the_ones_before_it_came(node: RunningNode) -> None:
    """Nothing is stored, no rate token is taken, and in order all are taken."""
    with Peer(node.producer) as peer:
        refused = send(peer, 1)
        assert (refused.code, refused.repeat) == (ResultCode.FAIL_GAP, Repeat.GAP)
        assert send(peer, 0).code == 0
        assert send(peer, 1).code == 0
        assert batch(peer, [message(4), message(5)]).code == ResultCode.FAIL_GAP
        assert batch(peer, [message(2), message(3)]).code == 0
        half = {"message": message(9), "producerGroup": "shop", "timeout": 1000}
        refused_half = peer.call("sendHalfSync", **half).value
        assert (refused_half.code, refused_half.repeat) == (ResultCode.FAIL_GAP, Repeat.GAP)
        delayed = producer_idl.DelayMessage(
            topic="orders", body=b"x", tags="t", action=1, timestamp=TOMORROW_S, dmsgtype=2, uuid=UUID,
            uniqKey=key(9).decode(),
        )  # fmt: skip
        refused_delay = peer.call("sendDelaySync", delayMessage=delayed, timeout=1000).value
        assert (refused_delay.code, refused_delay.repeat) == (ResultCode.FAIL_GAP, Repeat.GAP)
    assert stored(node) == 4
    assert node.node.runtime.metrics.value("pyddmq_sends_gaps_total") == 5


def test_refused_message_leaves_its_number_free(node: RunningNode) -> None:
    """A message that breaks a rule is not stored; the next one has the same number."""
    with Peer(node.producer) as peer:
        assert send(peer, 0, b"").code == ResultCode.FAIL_ILLEGAL_MSG
        assert send(peer, 0, topic="missing").code == ResultCode.FAIL_TOPIC_NOT_EXIST
        assert send(peer, 0, b"good").code == 0
    assert stored(node) == 1


def test_repeat_takes_no_rate_token(node: RunningNode) -> None:
    """One a second is allowed: repeats are answered with 0, another message is refused."""
    with Peer(node.producer) as peer:
        assert send(peer, 0, topic="slow").code == 0
        for _ in range(5):
            assert send(peer, 0, topic="slow").code == 0
        assert stored(node) == 1


@pytest.mark.parametrize(
    "bad",
    [
        "",
        "x",
        "FE",
        key(0).decode().lower(),
        key(0).decode() + "0",
        key(0).decode()[:-1],
        "0A" + key(0).decode()[2:],
        key(0).decode()[:-12] + "000000000000",
        key(0).decode()[:-1] + "\u0416",
        "F" * 4096,
    ],
)
def test_key_of_another_form_is_refused(node: RunningNode, bad: str) -> None:
    """In every call that has one; nothing is stored."""
    with Peer(node.producer) as peer:
        wrong = producer_idl.Message(topic="orders", body=b"x", uniqKey=bad)
        codes = [
            peer.call("sendSync", message=wrong, timeout=1000).value.code,
            batch(peer, [wrong]).code,
            peer.call("sendHalfSync", message=wrong, producerGroup="shop", timeout=1000).value.code,
            peer.call(
                "sendDelaySync",
                delayMessage=producer_idl.DelayMessage(
                    topic="orders", body=b"x", tags="t", action=1, timestamp=TOMORROW_S, dmsgtype=2, uuid=UUID,
                    uniqKey=bad,
                ),
                timeout=1000,
            ).value.code,
        ]  # fmt: skip
        assert codes == [ResultCode.FAIL_ILLEGAL_MSG] * 4
    assert stored(node) == 0


def test_batch_has_the_numbers_of_one_producer_in_order_or_none(node: RunningNode) -> None:
    """All, or none; one name; one after the other."""
    plain = producer_idl.Message(topic="orders", body=b"x")
    other = NAME[:-1] + b"9"
    mixed = [
        [message(0), plain],
        [plain, message(0)],
        [message(0), message(0)],
        [message(0), message(2)],
        [message(1), message(0)],
        [message(0), message(1, name=other)],
    ]
    with Peer(node.producer) as peer:
        for messages in mixed:
            assert batch(peer, messages).code == ResultCode.FAIL_ILLEGAL_MSG
        assert batch(peer, [message(0), message(1)]).code == 0
        assert batch(peer, [plain, plain]).code == 0
    assert stored(node) == 4


def test_property_of_that_name_stays_refused(node: RunningNode) -> None:
    """D34: the key is a field, not a property."""
    with Peer(node.producer) as peer:
        assert send(peer, 0, properties={"UNIQ_KEY": "mine"}).code == ResultCode.FAIL_ILLEGAL_MSG


@pytest.mark.parametrize("checkpoint", [True, False])
def test_repeats_are_known_after_a_kill_and_after_a_stop(data: Path, checkpoint: bool) -> None:
    """From the checkpoint and the log, or from the log alone; the next number is known as well."""
    with run(data) as node, Peer(node.producer) as peer:
        single = send(peer, 0)
        together = batch(peer, [message(number) for number in range(1, 6)])
    for last in ("stop", "kill"):
        if not checkpoint:
            (data / "pyddmq" / "deduplication").unlink(missing_ok=True)
        with run(data) as node:
            with Peer(node.producer) as peer:
                again = send(peer, 0)
                assert (again.code, again.repeat, facts(again)) == (0, 1, facts(single))
                whole = batch(peer, [message(number) for number in range(1, 6)])
                assert [facts(each) for each in whole.receipts] == [facts(each) for each in together.receipts]
                assert send(peer, 7).code == ResultCode.FAIL_GAP
            assert stored(node) == 6
            if last == "kill":
                node.kill()


def test_window_ends_with_so_many_messages(data: Path) -> None:
    """Before it the answer is 0 without a place; and a producer that is forgotten is told a gap, not stored twice."""
    with run(data, ", deduplicationMessages: 4, deduplicationProducers: 2") as node, Peer(node.producer) as peer:
        for number in range(20):
            assert send(peer, number).repeat is None
        old = send(peer, 0)
        assert (old.code, old.repeat, old.msgId, old.qid) == (0, Repeat.OLDER, key(0).decode(), None)
        assert send(peer, 19).repeat == Repeat.FIRST_RECEIPT
        for digit in b"12":
            assert send(peer, 0, name=NAME[:-1] + bytes([digit])).code == 0
        assert send(peer, 19).code == ResultCode.FAIL_GAP
        assert node.node.runtime.metrics.value("pyddmq_producers_forgotten_total", "producers") == 1
        assert node.node.runtime.metrics.value("pyddmq_producers_known") == 2


def test_repeat_is_answered_while_the_node_drains(data: Path) -> None:
    """A first try was stored, its answer lost: the producer learns it though nothing new is taken."""
    with run(data) as node, Peer(node.producer) as peer:
        send(peer, 0)
        node.call(lambda: setattr(node.node, "_state", "draining"))
        assert (send(peer, 0).code, send(peer, 1).code) == (0, ResultCode.FAIL_SERVER_SHUTDOWN)
        node.call(lambda: setattr(node.node, "_state", "ready"))
