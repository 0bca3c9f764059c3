"""What a producer may expect of delays, timers and loops, whichever broker has the topic."""

from __future__ import annotations

import pytest

from pyddmq.codes import ResultCode
from tests.contract.time_grounds import BareKafkaGround, KafkaTimeGround, TimeCalls, TimeGround

UUID = "14f22520-ad72-11e7-91be-6ee54da579e3"
OTHER = "14f22520-ad72-11e7-91be-6ee54da579e4"
DONE, TOO_LATE, UNKNOWN = 1, 2, 3


@pytest.fixture(params=[TimeGround, KafkaTimeGround], ids=["embedded", "kafka"])
def ground(request: pytest.FixtureRequest) -> TimeGround:
    """A node over either broker."""
    made: TimeGround = request.param()
    return made


@pytest.mark.parametrize("kind", ["deliverAtMs", "delayMs", "delayLevel"])
def test_message_waits_and_comes_once(ground: TimeCalls, kind: str) -> None:
    """Never before its moment; the answer has an id, a handle where it is a timer, and no place."""
    due = ground.now_ms + 5_000
    value = {"deliverAtMs": due, "delayMs": 5_000, "delayLevel": 2}[kind]
    result = ground.send(b"x", **{kind: value})
    assert (result.code, result.qid, result.offset) == (0, None, None)
    assert len(result.msgId) == 32
    assert (result.handle is not None) == (kind != "delayLevel")
    ground.wait(3)
    assert ground.bodies == []
    ground.wait(20)
    [(body, moment)] = ground.delivered
    assert body == b"x"
    assert due <= moment <= due + ground.late_ms


def test_moment_that_has_passed_is_now(ground: TimeCalls) -> None:
    """Such a message is sent as any other."""
    assert ground.send(b"x", deliverAtMs=ground.now_ms - 1_000).code == 0
    ground.wait(2)
    assert ground.bodies == [b"x"]


def test_message_keeps_what_it_was_sent_with(ground: TimeCalls) -> None:
    """Key, tag, properties and id are those of the send."""
    result = ground.send(b"x", delayMs=1_000, key="K", tags="T", properties={"a": "1"})
    ground.wait(5)
    assert ground.keys[b"x"] == ["K"]
    assert ground.properties[b"x"]["a"] == "1"
    assert result.code == 0


def test_too_far_ahead_is_refused(ground: TimeCalls) -> None:
    """With code 11 and the limit."""
    due = ground.now_ms + (ground.ahead_seconds + 100) * 1000
    result = ground.send(b"x", deliverAtMs=due)
    assert result.code == ResultCode.FAIL_ILLEGAL_MSG
    assert "the limit is" in result.msg


def test_delay_message_is_delivered_once_or_cancelled(ground: TimeCalls) -> None:
    """A cancel says definitely what became of it."""
    at = ground.now_ms // 1000 + 5
    first = ground.delay(b"a", UUID, timestamp=at, dmsgtype=2)
    second = ground.delay(b"b", OTHER, timestamp=at, dmsgtype=2)
    assert (first.code, second.code) == (0, 0)
    assert ground.cancel(second.uniqDelayMsgId) == DONE
    ground.wait(10)
    assert ground.bodies == [b"a"]
    assert ground.properties[b"a"]["from_chronos"] == "true"
    assert ground.keys[b"a"] == [first.uniqDelayMsgId]
    assert ground.cancel(first.uniqDelayMsgId) == TOO_LATE
    assert ground.cancel(f"{at}-2-{at + 172_800}-0-0-0-0-{OTHER[:-1]}9") == UNKNOWN


def test_delay_message_that_is_added_again_comes_once(ground: TimeCalls) -> None:
    """Both adds are answered with the same id."""
    at = ground.now_ms // 1000 + 3
    ids = {ground.delay(b"a", UUID, timestamp=at, dmsgtype=2).uniqDelayMsgId for _ in range(2)}
    ground.wait(8)
    assert len(ids) == 1
    assert ground.bodies == [b"a"]


def test_loop_comes_until_its_times_are_over(ground: TimeCalls) -> None:
    """Every interval, each occurrence with an id of its own, in order."""
    at = ground.now_ms // 1000 + 3
    result = ground.delay(b"a", UUID, timestamp=at, dmsgtype=3, interval=4, times=4, expire=at + 1_000)
    assert result.code == 0
    ground.wait(30)
    moments = [moment for _, moment in ground.delivered]
    assert len(moments) == 4
    for number, moment in enumerate(moments):
        assert 0 <= moment - (at + 4 * number) * 1000 <= ground.late_ms
    assert ground.keys[b"a"] == [f"{at + 4 * n}-3-{at + 1000}-4-{n}-4-0-{UUID}" for n in range(4)]


def test_loop_is_cancelled_by_the_id_of_any_occurrence(ground: TimeCalls) -> None:
    """What was delivered before stays; nothing comes afterwards."""
    at = ground.now_ms // 1000 + 3
    ground.delay(b"a", UUID, timestamp=at, dmsgtype=3, interval=4, times=9, expire=at + 1_000)
    ground.wait(8)
    [*_, last] = ground.keys[b"a"]
    assert ground.cancel(last) == DONE
    count = len(ground.bodies)
    ground.wait(20)
    assert len(ground.bodies) == count == 2


def test_delays_without_their_topics_are_refused_with_the_command() -> None:
    """Code 18, and what creates both topics; a plain send is taken."""
    ground = BareKafkaGround()
    result = ground.send(b"x", delayMs=1_000)
    assert result.code == ResultCode.FAIL_TOPIC_IS_NOT_DELAY
    assert "kafka-topics.sh --bootstrap-server 127.0.0.1:1 --create --topic __pyddmq_waiting" in result.msg
    assert ground.delay(b"a", UUID, timestamp=ground.now_ms // 1000 + 9, dmsgtype=2).code == result.code
    assert ground.send(b"y").code == 0
    ground.kafka.partitions("__pyddmq_waiting", 3)
    ground.kafka.partitions("__pyddmq_answers", 1)
    ground.wait(30)
    assert ground.send(b"x", delayMs=1_000).code == 0
    ground.wait(20)
    assert ground.bodies == [b"y", b"x"]


def test_delays_on_a_topic_that_is_not_compacted_are_refused() -> None:
    """Retention would delete what waits."""
    ground = BareKafkaGround()
    ground.kafka.partitions("__pyddmq_waiting", 3)
    ground.kafka.partitions("__pyddmq_answers", 1)
    ground.kafka.settings["__pyddmq_waiting"] = {"cleanup.policy": "delete"}
    ground.wait(30)
    result = ground.send(b"x", delayMs=1_000)
    assert result.code == ResultCode.FAIL_TOPIC_IS_NOT_DELAY
    assert "cleanup.policy=delete" in result.msg
