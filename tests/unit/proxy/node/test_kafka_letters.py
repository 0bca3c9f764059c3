"""What a record of a dead-letter topic in Kafka says, and the records of a redrive."""

from __future__ import annotations

import pytest

from proxy.node.kafka_letters import is_mark, letter_of, mark, redriven
from upstream.kafka.link import Headers, KafkaRecord, OutgoingRecord


def record(headers: Headers, key: bytes | None = b"k", value: bytes | None = b"body") -> KafkaRecord:
    """A record of a dead-letter topic."""
    return KafkaRecord("billing.DLQ", 1, 7, 1_000, key, value, headers)


def test_record_of_the_writer_is_a_dead_letter_with_all_that_it_says() -> None:
    """Where from, why, when first, and how often it was tried."""
    facts = {"reason": b"no", "topic": b"invoices", "partition": b"3", "offset": b"9", "timestamp": b"5"}
    facts |= {"attempts": b"2", "action": b"Http"}
    letter = letter_of(record([("TAGS", b"blue"), *((f"pyddmq.{name}", value) for name, value in facts.items())]))
    assert (letter.id, letter.topic, letter.queue, letter.offset_in_topic) == ("1:7", "invoices", 3, 9)
    assert (letter.reason, letter.action, letter.attempts, letter.key) == ("no", "Http", 2, "k")
    assert letter.message is not None
    assert (letter.message.born_ms, letter.message.store_ms) == (5, 1_000)


@pytest.mark.parametrize(
    "headers",
    [
        [],
        [("pyddmq.attempts", b"many"), ("pyddmq.partition", b"-1"), ("pyddmq.topic", None)],
        [("DLQ_ORIGIN_TOPIC", b"payments"), ("DLQ_REASON", b"mine"), ("pyddmq.offset", b"\xff")],
    ],
)
def test_record_of_another_program_is_one_whose_origin_is_not_known(headers: Headers) -> None:
    """Headers that make no sense, and those that only look like the store's, say nothing."""
    letter = letter_of(record(headers, key=None, value=None))
    assert (letter.topic, letter.queue, letter.offset_in_topic, letter.attempts, letter.key) == ("", None, None, 0, "")
    assert letter.reason == "unknown (written by another program)"


def test_redriven_record_is_the_one_that_was_sent_and_its_mark_is_beside_the_letter() -> None:
    """Key, value and headers but for those of its death; the mark has the letter's partition, offset and key."""
    letter = letter_of(record([("x", b"1"), ("x", None), ("pyddmq.reason", b"no"), ("pyddmq.own", b"")]))
    assert redriven(letter, "invoices", 3) == OutgoingRecord("invoices", 3, b"k", b"body", [("x", b"1"), ("x", None)])
    made = mark(letter, "invoices")
    assert (made.topic, made.partition, made.key, made.value) == ("billing.DLQ", 1, b"k", None)
    assert dict(made.headers)["pyddmq.redriven"] == b"7"
    assert is_mark(KafkaRecord("billing.DLQ", 1, 8, 0, made.key, made.value, made.headers))
    assert not is_mark(letter.record)
