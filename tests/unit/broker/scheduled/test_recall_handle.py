"""Recall handles: RocketMQ's form, and what is none."""

from __future__ import annotations

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.errors import MessageRefused
from broker.scheduled.timer.handle import RecallHandle

words = st.text(st.characters(codec="utf-8", exclude_categories=["Z", "C"]), min_size=1, max_size=40)


def test_handle_has_rocketmqs_form() -> None:
    """The text that RocketMQ's RecallMessageHandle builds, spelled out."""
    handle = str(RecallHandle("orders", "broker-a", 1_700_000_001_001, "AC11000100002A9F0000000000000001"))
    assert handle == ("djEgb3JkZXJzIGJyb2tlci1hIDE3MDAwMDAwMDEwMDEgQUMxMTAwMDEwMDAwMkE5RjAwMDAwMDAwMDAwMDAwMDE=")


@given(words, words, st.integers(0, 10**18 - 1), words, st.integers(0, 2))
def test_handle_is_read_back(topic: str, broker: str, timestamp: int, key: str, spaces: int) -> None:
    """Whatever the names are; a broker's may hold spaces."""
    handle = RecallHandle(topic, (" " * spaces).join([broker, broker]), timestamp, key)
    assert RecallHandle.parse(str(handle)) == handle


@pytest.mark.parametrize(
    "text",
    [
        "",
        "not base64!",
        "\u00e9",
        base64.b64encode(b"v1 orders broker-a 5 \xff\xfe").decode(),
        base64.urlsafe_b64encode(b"v2 orders broker-a 5 KEY").decode(),
        base64.urlsafe_b64encode(b"v1 orders broker-a KEY").decode(),
        base64.urlsafe_b64encode(b"v1 orders broker-a soon KEY").decode(),
        base64.urlsafe_b64encode(b"v1  broker-a 5 KEY").decode(),
        base64.urlsafe_b64encode(b"v1 orders broker-a 5 ").decode(),
        base64.urlsafe_b64encode(b"v1 orders b 5 K" + b"k" * 2000).decode(),
    ],
)
def test_what_is_no_handle_is_refused(text: str) -> None:
    """With a sentence that says what to give instead."""
    with pytest.raises(MessageRefused, match="is not a valid timer handle; use the handle of the message's receipt"):
        RecallHandle.parse(text)
