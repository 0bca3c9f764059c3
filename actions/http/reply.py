"""What a receiver's reply means: DDMQ's errno protocol (R55, R56). Pure.

| reply | meaning |
| --- | --- |
| status not among the successes, 3xx among them | an error: maxRetry and its backoff |
| success; body blank, no JSON, no object, or no `errno` in it (absent, null, a list, an object) | consumed |
| success; the body names `errno` and cannot be read as JSON, or is packed in a way that is not known here | an error |
| errno 0 | consumed |
| errno 1000000 | consumed, and the receiver wants it slower (R58) |
| errno 1000001 | consumed: the receiver gives the message up; counted |
| errno 1000002 | again after 1 s, not counted against any limit |
| any other number, also as text | a business failure: retryIntervals |
| any other errno (a text that is not a number, true, a fraction) | a business failure |

A failure must not count as success for the way in which it was written. So a body is unpacked by its Content-Encoding
and decoded by its charset; without one by its byte order mark, as JSON's UTF-8, UTF-16 or UTF-32, and else as GB18030
(which has GBK), then as Latin-1. What follows the object is left out.
"""

from __future__ import annotations

import enum
import json
import re
import zlib
from collections.abc import Callable, Iterator
from datetime import UTC
from email.utils import parsedate_to_datetime
from typing import Any, NamedTuple

import msgspec

SLOW_DOWN = 1_000_000
GIVEN_UP = 1_000_001
RETRY = 1_000_002
RETRY_MS = 1000
_NUMBER = re.compile(r"\s*([+-]?[0-9]{1,20})\s*\Z", re.ASCII)
_TEXT_CHARACTERS_MAX = 200
_LIKE_ASCII = frozenset(("utf-8", "utf8", "us-ascii", "ascii", "iso-8859-1", "latin-1", "gbk", "gb2312", "gb18030"))
"""Charsets in which a body without the bytes of `errno` does not name it."""
_DECODER = json.JSONDecoder()


class ReplyMeaning(enum.Enum):
    """What becomes of the message."""

    CONSUMED = "consumed"
    SLOW_DOWN = "slow down"
    GIVEN_UP = "rejected"
    RETRY = "retry"
    FAILED = "failed"
    UNREADABLE = "unreadable"


class ReplyVerdict(NamedTuple):
    """A reply as it is meant."""

    meaning: ReplyMeaning
    reason: str = ""
    """Of a failure, for the dead letter; it quotes what the receiver wrote, cut and printable."""


_CONSUMED = ReplyVerdict(ReplyMeaning.CONSUMED)
_BY_NUMBER = {
    0: _CONSUMED,
    SLOW_DOWN: ReplyVerdict(ReplyMeaning.SLOW_DOWN),
    GIVEN_UP: ReplyVerdict(ReplyMeaning.GIVEN_UP),
    RETRY: ReplyVerdict(ReplyMeaning.RETRY),
}


def judge(
    body: bytes, hide: Callable[[str], str] = str, *, charset: str = "", coding: str = "", bytes_max: int = 65_536
) -> ReplyVerdict:
    """Say what the body of a reply with a status of success means.

    Args:
        body: What the receiver wrote.
        hide: Takes secrets out of a text before it is cut to a line.
        charset: Of its Content-Type, "" where it has none.
        coding: Its Content-Encoding, "" where it has none.
        bytes_max: How many bytes it may be unpacked to.
    """
    if coding and coding != "identity":
        unpacked = _unpacked(body, coding, bytes_max)
        if unpacked is None:
            return ReplyVerdict(
                ReplyMeaning.UNREADABLE, f"a body compressed by {printable(coding)} that cannot be decompressed"
            )
        body = unpacked
    if not charset or charset in _LIKE_ASCII:
        if not body or (b"errno" not in body and b"\\u" not in body and b"\0" not in body):
            return _CONSUMED
        try:
            return _verdict(msgspec.json.decode(body), hide)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            pass
    is_named = False
    for text in _texts(body, charset):
        if "errno" not in text and "\\u" not in text:
            continue
        is_named = True
        try:
            reply, _ = _DECODER.raw_decode(text.lstrip("\ufeff \t\r\n"))
        except (ValueError, RecursionError):
            continue
        return _verdict(reply, hide)
    return (
        ReplyVerdict(ReplyMeaning.UNREADABLE, "a body that names errno and cannot be read as JSON")
        if is_named
        else _CONSUMED
    )


def _texts(body: bytes, charset: str) -> Iterator[str]:
    """Yield what a body may say, the most likely first."""
    for name in dict.fromkeys((charset, json.detect_encoding(body), "gb18030", "latin-1")):
        try:
            if name:
                # bytes.decode takes charsets alone: as a codec, "zip" would unpack a bomb.
                yield body.decode(name)
        except (LookupError, ValueError, TypeError):
            continue


def _unpacked(body: bytes, coding: str, bytes_max: int) -> bytes | None:
    if coding not in ("gzip", "x-gzip", "deflate"):
        return None
    # 47: the head of zlib or gzip; some servers send deflate without any.
    for window in (47, -15):
        unpacking = zlib.decompressobj(window)
        try:
            found = unpacking.decompress(body, bytes_max)
        except zlib.error:
            continue
        return found if unpacking.eof else None
    return None


def _verdict(reply: Any, hide: Callable[[str], str]) -> ReplyVerdict:
    if not isinstance(reply, dict):
        return _CONSUMED
    errno = reply.get("errno")
    if errno is None or isinstance(errno, list | dict):
        return _CONSUMED
    number = _whole(errno)
    if number is None:
        return ReplyVerdict(ReplyMeaning.FAILED, f"errno {printable(hide(str(errno)))} is not a number")
    known = _BY_NUMBER.get(number)
    if known is not None:
        return known
    said = reply.get("errmsg")
    return ReplyVerdict(
        ReplyMeaning.FAILED, f"errno {number}" + (f": {printable(hide(said))}" if isinstance(said, str) else "")
    )


def _whole(errno: Any) -> int | None:
    if isinstance(errno, bool):
        return None
    if isinstance(errno, int):
        return errno
    if isinstance(errno, float):
        return int(errno) if errno.is_integer() else None
    found = _NUMBER.match(errno) if isinstance(errno, str) else None
    return int(found[1]) if found else None


def printable(value: object) -> str:
    """Return what a peer wrote as one short line."""
    text = str(value)[:_TEXT_CHARACTERS_MAX]
    return "".join(letter if letter.isprintable() else "?" for letter in text)


def retry_after_ms(text: str, now_ms: int) -> int:
    """Return the wait in milliseconds that a Retry-After asks for (RFC 9110 10.2.3); 0 where it asks for none.

    Args:
        text: Its value: seconds, or a date.
        now_ms: Milliseconds since the epoch.
    """
    text = text.strip()
    if text.isascii() and text.isdigit():
        return int(text[:9]) * 1000
    try:
        moment = parsedate_to_datetime(text)
        # The form of `asctime` names no zone, and means GMT (RFC 9110 5.6.7).
        moment = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
        return max(0, round(moment.timestamp() * 1000) - now_ms)
    except (ValueError, TypeError, IndexError, OverflowError):
        return 0
