"""The codes are stable, and each is answered somewhere."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from proxy.wire.generic.tables import method
from pyddmq.codes import PullCode, ResultCode
from tests.wire_values import STRUCTS, table

ROOT = Path(__file__).parents[4]
PAGE = (ROOT / "docs" / "protocol.md").read_text()


def test_result_codes_are_those_of_ddmq() -> None:
    """The numbers that DDMQ's client libraries know, and those of our own from 40 on, which keep their numbers."""
    numbers = [0, 10, 11, 12, 13, 14, 15, 18, 19, 20, 21, 30, 31, 32, 33, 34, 35, 36, 37, 38]
    assert [int(code) for code in ResultCode if code < 40] == numbers
    assert {code.name: int(code) for code in ResultCode if code >= 40} == {
        "FAIL_ILLEGAL_PRODUCER_GROUP": 40,
        "FAIL_NO_SUCH_HALF": 41,
        "FAIL_OTHER_PRODUCER_GROUP": 42,
        "FAIL_ILLEGAL_TRANSACTION_STATE": 43,
        "FAIL_DECIDED_OTHERWISE": 44,
        "FAIL_TOO_LATE": 45,
        "FAIL_DISCARDED": 46,
        "FAIL_COMMIT_REFUSED": 47,
        "FAIL_GAP": 48,
        "FAIL_WRITE_DIFFERS": 49,
        "FAIL_WRITE_WAITS": 50,
    }


def test_every_code_is_answered_somewhere() -> None:
    """A table of what cannot happen would send its readers looking; two are answered for topics in Kafka alone."""
    files = [file for room in ("proxy", "upstream") for file in (ROOT / room).rglob("*.py") if file.name != "codes.py"]
    answered = "".join(file.read_text() for file in files)
    unused = [code for code in ResultCode if not re.search(rf"ResultCode\.{code.name}\b", answered)]
    assert unused == []
    assert "12 and 21 are answered for topics in Kafka alone" in PAGE
    assert all(f"PullCode.{code.name}" in answered for code in PullCode)


def test_pull_codes_keep_their_numbers() -> None:
    """Clients act on the numbers; a new meaning gets a new one."""
    assert {code.name: int(code) for code in PullCode} == {
        "NO_SUCH_GROUP": 1,
        "NO_SUCH_TOPIC": 2,
        "STARTING": 3,
        "OVERLOADED": 4,
        "GROUP_DISABLED": 5,
        "ACKS_REFUSED": 6,
        "STORE_FAILED": 7,
        "DENIED": 8,
        "LIMITED": 9,
        "LOW_LEVEL": 10,
        "NOT_LOW_LEVEL": 11,
        "NO_SUCH_QUEUE": 12,
        "OTHER_CLUSTER": 13,
    }


FIELDS = {
    "consumer.Message": "1 key 2 value 3 tag 4 offset 5 properties 101 storeTimestamp 102 bornTimestamp 103 delivery",
    "consumer.Context": "1 groupId 2 topic 3 qid",
    "consumer.ConsumeResult": "1 context 3 successOffsets 4 failOffsets 10 nextResult 101 deliveries 102 reasons",
    "consumer.PullRequest": "1 groupId! 2 topic 10 maxBatchSize 11 maxLingerTime 50 result 60 version",
    "consumer.PullResponse": "1 context 2 messages",
    "consumer.PullException": "1 code 2 message 101 retryAfterMs",
    "consumer.ConsumeStatsRequest": "1 group! 2 topic 3 version",
    "consumer.ConsumeStats": "1 group 2 topic 3 consumeOffsets 4 produceOffsets 101 startOffsets",
    "consumer.FetchRequest": "1 consumerId! 2 groupId! 3 cluster! 4 fetchOffset 10 maxBatchSize 11 maxLingerTime "
    "60 version 101 onlyNamed",
    "consumer.QidResponse": "1 topic! 2 qid! 3 nextRequestOffset 10 messages!",
    "consumer.FetchResponse": "1 code 10 results!",
    "consumer.AckResult": "1 consumerId! 2 groupId! 3 cluster! 4 offsets!",
    "producer.Message": "1 topic 2 key 3 value 4 hashId 5 tags 6 partitionId 7 body 8 version 9 properties "
    "101 delayLevel 102 deliverAtMs 103 delayMs 104 uniqKey",
    "producer.Receipt": "1 msgId 2 qid 3 offset 4 handle",
    "producer.Result": "1 code 2 msg 3 key 101 msgId 102 qid 103 offset 104 handle 105 receipts 106 repeat "
    "107 retryAfterMs",
    "producer.DelayMessage": "1 topic 2 uniqDelayMsgId 3 body 4 tags 5 action 6 timestamp 7 dmsgtype 8 interval "
    "9 expire 10 times 11 uuid 13 version 14 properties 102 uniqKey",
    "producer.DelayResult": "1 code 2 msg 3 uniqDelayMsgId 101 cancelOutcome 106 repeat 107 retryAfterMs",
    "producer.DelayMeta": "1 timestamp 2 dmsgtype 3 interval 4 expire 5 times 7 properties",
    "producer.RestMessage": "1 type 2 mode 3 url 4 params 5 headers 6 timestamp 7 expire 8 timeout 9 retryCnt",
    "producer.HalfResult": "1 code 2 msg 3 key 4 transactionId 5 handle 101 offset 106 repeat 107 retryAfterMs",
    "producer.EndTransaction": "1 producerGroup 2 handle 3 state 4 fromCheck 5 remark",
    "producer.CheckRequest": "1 producerGroup 10 maxBatchSize 11 maxLingerTime 20 answers",
    "producer.TransactionCheck": "1 handle 2 transactionId 3 checkTimes 4 message 5 bornTimestamp",
}
"""Field ids and names of DDMQ (R, 1.4 and 1.6) with our additions from 101 on, and those of transactions (D33); `!`
marks required ones."""


@pytest.mark.parametrize(("file", "name"), STRUCTS)
def test_interface_definition_has_the_fields_of_ddmq(file: str, name: str) -> None:
    """Field numbers, names and requiredness never change."""
    fields = table(file, name).fields.values()
    assert " ".join(f"{each.id} {each.name}{'!' * each.required}" for each in fields) == FIELDS[f"{file}.{name}"]


def test_struct_tables_are_made_once() -> None:
    """A struct that holds itself and one that two methods share are each one table."""
    result = table("consumer", "ConsumeResult")
    assert result.fields[10].type.struct is result
    assert method("submit").arguments.fields[1].type.struct is result
    assert method("pull").arguments.fields[1].type.struct is table("consumer", "PullRequest")
