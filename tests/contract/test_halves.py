"""What a producer may expect of transactions, whichever broker has the topic."""

from __future__ import annotations

import pytest

from pyddmq.codes import ResultCode
from tests.contract.time_grounds import BareKafkaGround, KafkaTimeGround, TimeCalls, TimeGround
from tests.simulation.wire import producer_idl

COMMIT, ROLLBACK, UNKNOWN = 8, 12, 0


@pytest.fixture(params=[TimeGround, KafkaTimeGround], ids=["embedded", "kafka"])
def ground(request: pytest.FixtureRequest) -> TimeGround:
    """A node over either broker."""
    made: TimeGround = request.param()
    return made


def test_half_comes_by_its_commit_alone(ground: TimeCalls) -> None:
    """With the id, key, tag and properties of its send; a rolled-back one never comes."""
    first = ground.half(b"a", key="K", tags="T", properties={"p": "1"})
    second = ground.half(b"b")
    assert (first.code, len(first.transactionId), first.key) == (0, 32, "K")
    ground.wait(2)
    assert ground.bodies == []
    assert [ground.end_half(first.handle, COMMIT), ground.end_half(second.handle, ROLLBACK)] == [0, 0]
    ground.wait(3)
    assert ground.bodies == [b"a"]
    assert ground.keys[b"a"] == ["K"]
    assert ground.properties[b"a"]["p"] == "1"


def test_decision_is_final_and_told_again(ground: TimeCalls) -> None:
    """The same one is fine, the other one is refused, and nothing comes twice."""
    half = ground.half(b"a")
    codes = [ground.end_half(half.handle, state) for state in (UNKNOWN, COMMIT, COMMIT, ROLLBACK)]
    assert codes == [0, 0, 0, ResultCode.FAIL_DECIDED_OTHERWISE]
    ground.wait(3)
    assert ground.bodies == [b"a"]
    back = ground.half(b"b")
    codes = [ground.end_half(back.handle, state) for state in (ROLLBACK, ROLLBACK, COMMIT)]
    assert codes == [0, 0, ResultCode.FAIL_DECIDED_OTHERWISE]
    ground.wait(3)
    assert ground.bodies == [b"a"]


def test_only_its_group_decides_a_half(ground: TimeCalls) -> None:
    """Another group, a handle of none, and one that is not a handle are refused."""
    half = ground.half(b"a")
    assert ground.end_half(half.handle, COMMIT, group="other") == ResultCode.FAIL_OTHER_PRODUCER_GROUP
    for wrong in (
        "",
        "x",
        "kafka",
        "kafka/main/orders//x",
        "kafka/none/orders//x",
        "kafka/main/a/b/c/d",
        half.handle[:-6],
    ):
        assert ground.end_half(wrong, COMMIT) == ResultCode.FAIL_NO_SUCH_HALF, wrong
    assert ground.end_half(half.handle, ROLLBACK) == 0


def test_delay_begins_with_the_commit(ground: TimeCalls) -> None:
    """A delay, not the age of the half, is what it waits."""
    half = ground.half(b"a", delayMs=4_000)
    ground.wait(2)
    committed_ms = ground.now_ms
    assert ground.end_half(half.handle, COMMIT) == 0
    ground.wait(2)
    assert ground.bodies == []
    ground.wait(6)
    [(body, moment)] = ground.delivered
    assert body == b"a"
    assert committed_ms + 4_000 <= moment <= committed_ms + 6_500 + ground.late_ms


def test_undecided_half_is_checked_and_decided_by_the_answer(ground: TimeCalls) -> None:
    """With the whole message; the answer rides on the next fetch."""
    half = ground.half(b"a", key="K", tags="T", properties={"p": "1"})
    assert ground.checks() == []
    ground.wait(8)
    assert ground.checks(group="other") == []
    [check] = ground.checks()
    assert (check.handle, check.transactionId, check.checkTimes) == (half.handle, half.transactionId, 1)
    message = check.message
    assert (message.topic, message.body, message.key, message.tags) == (ground.topic, b"a", "K", "T")
    assert message.properties == {"p": "1"}
    assert ground.checks() == []
    answer = producer_idl.EndTransaction(producerGroup="shop", handle=check.handle, state=COMMIT, fromCheck=True)
    assert ground.checks(answers=[answer]) == []
    ground.wait(3)
    assert ground.bodies == [b"a"]


def test_half_that_is_sent_again_is_the_same(ground: TimeCalls) -> None:
    """A numbered half gets the same id and handle again, and comes once."""
    key = "FE000000000100000000000000000000"
    first = ground.half(b"a", uniqKey=key)
    again = ground.half(b"a", uniqKey=key)
    assert (again.code, again.transactionId, again.handle) == (0, first.transactionId, first.handle)
    assert [ground.end_half(each.handle, COMMIT) for each in (first, again)] == [0, 0]
    ground.wait(5)
    assert ground.bodies == [b"a"]


def test_too_far_ahead_is_refused(ground: TimeCalls) -> None:
    """At the half, not at its commit."""
    result = ground.half(b"x", deliverAtMs=ground.now_ms + (ground.ahead_seconds + 100) * 1000)
    assert result.code == ResultCode.FAIL_ILLEGAL_MSG
    assert "the limit is" in result.msg


def test_without_the_waiting_topic_halves_are_refused() -> None:
    """With the commands that create it."""
    result = BareKafkaGround().half(b"x")
    assert result.code == ResultCode.FAIL_TOPIC_IS_NOT_DELAY
    assert "kafka-topics.sh" in result.msg
