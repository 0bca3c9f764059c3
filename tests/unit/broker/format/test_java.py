"""Java's String.hashCode."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.format.java import queue_of_key, string_hash, tags_code


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("", 0),
        ("d", 100),
        ("TagA", 2598919),
        ("TagB", 2598920),
        ("_RECALL_TAG_", -847619372),
        ("订单", 1129459),
        ("𝄞", 1772394),
    ],
)
def test_string_hash_equals_javas(text: str, code: int) -> None:
    """The hashes are those that RocketMQ writes into its consume queues."""
    assert string_hash(text) == code
    assert tags_code(text.encode()) == code


@given(st.text(max_size=700))
def test_string_hash_equals_the_plain_formula(text: str) -> None:
    """The fast sum agrees with h = 31 h + unit over UTF-16 code units, wrapped to 32 bits."""
    value = 0
    raw = text.encode("utf-16-be", "surrogatepass")
    for at in range(0, len(raw), 2):
        value = (31 * value + int.from_bytes(raw[at : at + 2], "big")) & 0xFFFFFFFF
    assert string_hash(text) == value - ((value & 0x80000000) << 1)


def test_queue_of_key_whose_hash_is_the_smallest_integer_is_in_range() -> None:
    """Java's absolute value of -2^31 is negative; the queue must not be (W80)."""
    key = "polygenelubricants"
    assert string_hash(key) == -(2**31)
    assert [queue_of_key(key, queues) for queues in (1, 3, 7)] == [2**31 % 1, 2**31 % 3, 2**31 % 7]


def test_tags_code_cache_stays_right_when_it_overflows() -> None:
    """More tags than the cache holds still get their own codes."""
    for number in range(5000):
        assert tags_code(b"tag%d" % number) == string_hash(f"tag{number}")
    assert tags_code(b"") == 0
