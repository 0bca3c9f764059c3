"""DDMQ's errno protocol (R56)."""

from __future__ import annotations

import pytest

from actions.http.reply import Meaning, judge

CONSUMED, FAILED = Meaning.CONSUMED, Meaning.FAILED


@pytest.mark.parametrize(
    ("body", "meaning"),
    [
        (b"", CONSUMED),
        (b"  \n", CONSUMED),
        (b"OK", CONSUMED),
        (b"errno: 5", CONSUMED),
        (b"<errno>5</errno>", CONSUMED),
        (b'{"data": 1}', CONSUMED),
        (b'{"data": {"errno": 5}}', CONSUMED),
        (b'[{"errno": 5}]', CONSUMED),
        (b'"errno"', CONSUMED),
        (b'{"errno": null}', CONSUMED),
        (b'{"errno": []}', CONSUMED),
        (b'{"errno": {}}', CONSUMED),
        (b'{"errno": 0}', CONSUMED),
        (b'{"errno": "0"}', CONSUMED),
        (b'{"errno": 0.0}', CONSUMED),
        (b'{"errno": 1000000}', Meaning.SLOW_DOWN),
        (b'{"errno": "1000000"}', Meaning.SLOW_DOWN),
        (b'{"errno": 1000001}', Meaning.GIVEN_UP),
        (b'{"errno": 1000002}', Meaning.RETRY),
        (b'{"err\\u006eo": 7}', FAILED),
        (b'{"errno": 7}', FAILED),
        (b'{"errno": -1}', FAILED),
        (b'{"errno": " 7 "}', FAILED),
        (b'{"errno": "no"}', FAILED),
        (b'{"errno": ""}', FAILED),
        (b'{"errno": "1e3"}', FAILED),
        (b'{"errno": true}', FAILED),
        (b'{"errno": 0.5}', FAILED),
        (b'{"errno": 4294967296}', FAILED),
        (b'{"errno": 4295967296}', FAILED),
        (b'{"errno": 99999999999999999999999}', FAILED),
        (b'{"errno": 7, "errno": 0}', CONSUMED),
        (b'{"errno": 7', CONSUMED),
        (b'\xff\xfe{"errno": 7}', CONSUMED),
        (b'{"errno": 7, "x": ' + b"[" * 5000, CONSUMED),
    ],
)
def test_body_of_a_reply_means(body: bytes, meaning: Meaning) -> None:
    """What the table says; numbers do not wrap at 32 bits as DDMQ's do."""
    assert judge(body).meaning is meaning


def test_failure_quotes_the_receiver_in_one_short_line() -> None:
    """Its text is for the dead letter, and anybody's."""
    reason = judge(b'{"errno": 42, "errmsg": "no\\nsuch\\u001b[31m' + b"x" * 500 + b'"}').reason
    assert reason.startswith("errno 42: no?such?[31mxxx")
    assert len(reason) < 230
