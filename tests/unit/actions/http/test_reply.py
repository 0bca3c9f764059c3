"""DDMQ's errno protocol (R56)."""

from __future__ import annotations

import gzip
import time
import zlib

import pytest

from actions.http.reply import ReplyMeaning, judge, retry_after_ms

CONSUMED, FAILED, UNREADABLE = ReplyMeaning.CONSUMED, ReplyMeaning.FAILED, ReplyMeaning.UNREADABLE


@pytest.mark.parametrize(
    ("body", "meaning"),
    [
        (b"", CONSUMED),
        (b"  \n", CONSUMED),
        (b"OK", CONSUMED),
        (b"errno: 5", UNREADABLE),
        (b"<errno>5</errno>", UNREADABLE),
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
        (b'{"errno": 1000000}', ReplyMeaning.SLOW_DOWN),
        (b'{"errno": "1000000"}', ReplyMeaning.SLOW_DOWN),
        (b'{"errno": 1000001}', ReplyMeaning.GIVEN_UP),
        (b'{"errno": 1000002}', ReplyMeaning.RETRY),
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
        (b'{"errno": 7', UNREADABLE),
        (b'\xff\xfe{"errno": 7}', UNREADABLE),
        (b'{"errno": 7, "x": ' + b"[" * 5000, UNREADABLE),
        (b'{"errno": 7}\0', FAILED),
        (b'{"errno": 0}\r\n\0', CONSUMED),
        (b'{"errno": 1e999999}', FAILED),
        (b'{"errno": 7, "rate": 1e999999}', FAILED),
        (b'{"errno": 7, "errmsg": "\\ud800"}', FAILED),
        (b'\xef\xbb\xbf{"errno": 7}', FAILED),
        ('{"errno": 7, "errmsg": "\u6ca1\u6709"}'.encode("gbk"), FAILED),
        ('{"errno": 7, "errmsg": "\u8a8d"}'.encode("gbk"), FAILED),
        ('{"errno": 7, "errmsg": "\xe9t\xe9"}'.encode("latin-1"), FAILED),
        ('{"errno": 7}'.encode("utf-16"), FAILED),
        ('{"errno": 7}'.encode("utf-16-be"), FAILED),
        ('{"errno": 7}'.encode("utf-32"), FAILED),
        ('{"errno": 0}'.encode("utf-16-le"), CONSUMED),
        ('{"data": 1}'.encode("utf-16"), CONSUMED),
        (bytes(range(256)), CONSUMED),
    ],
)
def test_body_of_a_reply_means(body: bytes, meaning: ReplyMeaning) -> None:
    """What the table says; numbers do not wrap at 32 bits as DDMQ's do."""
    assert judge(body).meaning is meaning


@pytest.mark.parametrize(
    "charset", ["utf-16", "cp037", "gb18030", "shift_jis", "iso-8859-5", "nonsense", "zip", "utf-7"]
)
def test_body_is_decoded_by_its_charset(charset: str) -> None:
    """Also by one in which `errno` has other bytes; one that is not known is left out."""
    known = charset not in ("nonsense", "zip")
    assert judge('{"errno": 7, "errmsg": "?"}'.encode(charset if known else "utf-8"), charset=charset).meaning is FAILED
    assert judge('{"errno": 0}'.encode(charset if known else "utf-8"), charset=charset).meaning is CONSUMED


@pytest.mark.parametrize(
    ("coding", "packed", "meaning"),
    [
        ("gzip", gzip.compress(b'{"errno": 7}', mtime=0), FAILED),
        ("x-gzip", gzip.compress(b'{"errno": 0}', mtime=0), CONSUMED),
        ("deflate", zlib.compress(b'{"errno": 7}'), FAILED),
        ("deflate", zlib.compress(b'{"errno": 7}', wbits=-15), FAILED),
        ("identity", b'{"errno": 7}', FAILED),
        ("gzip", b"\x1f\x8b" + bytes(100), UNREADABLE),
        ("gzip", gzip.compress(bytes(10_000_000), mtime=0), UNREADABLE),
        ("br", b'{"errno": 7}', UNREADABLE),
    ],
)
def test_body_is_unpacked_within_its_bound(coding: str, packed: bytes, meaning: ReplyMeaning) -> None:
    """What cannot be unpacked is an error: whether it is a failure cannot be known."""
    assert judge(packed, coding=coding, bytes_max=65_536).meaning is meaning


@pytest.mark.parametrize(
    ("text", "wait_ms"),
    [
        ("120", 120_000),
        (" 0 ", 0),
        ("Thu, 01 Jan 1970 00:01:40 GMT", 40_000),
        ("Thu, 01 Jan 1970 00:00:40 GMT", 0),
        ("Thu Jan  1 00:01:40 1970", 40_000),
        ("Thursday, 01-Jan-70 00:01:40 GMT", 40_000),
        ("soon", 0),
        ("-5", 0),
        ("", 0),
        ("9" * 5000, 999_999_999_000),
        ("Fri, 99 Foo 99999 99:99:99 GMT", 0),
    ],
)
def test_retry_after_is_seconds_or_a_date(text: str, wait_ms: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Anything else is no wish (RFC 9110 10.2.3). A date is one of GMT, wherever the node is."""
    with monkeypatch.context() as elsewhere:
        elsewhere.setenv("TZ", "America/New_York")
        time.tzset()
        found = retry_after_ms(text, 60_000)
    time.tzset()
    assert found == wait_ms


def test_failure_quotes_the_receiver_in_one_short_line() -> None:
    """Its text is for the dead letter, and anybody's."""
    reason = judge(b'{"errno": 42, "errmsg": "no\\nsuch\\u001b[31m' + b"x" * 500 + b'"}').reason
    assert reason.startswith("errno 42: no?such?[31mxxx")
    assert len(reason) < 230
