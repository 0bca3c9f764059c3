"""What a receiver's reply means: DDMQ's errno protocol (R55, R56). Pure.

| reply | meaning |
| --- | --- |
| status not among the successes, 3xx among them | an error: maxRetry and its backoff |
| success; body blank, no JSON, no object, or no `errno` in it (absent, null, a list, an object) | consumed |
| errno 0 | consumed |
| errno 1000000 | consumed, and the receiver wants it slower (R58) |
| errno 1000001 | consumed: the receiver gives the message up; counted |
| errno 1000002 | again after 1 s, not counted against any limit |
| any other number, also as text | a business failure: retryIntervals |
| any other errno (a text that is no number, true, a fraction) | a business failure |
"""

from __future__ import annotations

import enum
import re
from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec

SLOW_DOWN = 1_000_000
GIVEN_UP = 1_000_001
RETRY = 1_000_002
RETRY_MS = 1000
_NUMBER = re.compile(r"\s*([+-]?[0-9]{1,20})\s*\Z", re.ASCII)
_TEXT_CHARACTERS_MAX = 200


class Meaning(enum.Enum):
    """What becomes of the message."""

    CONSUMED = "consumed"
    SLOW_DOWN = "slow down"
    GIVEN_UP = "given up"
    RETRY = "retry"
    FAILED = "failed"


class Verdict(NamedTuple):
    """A reply as it is meant."""

    meaning: Meaning
    reason: str = ""
    """Of a failure, for the dead letter; it quotes what the receiver wrote, cut and printable."""


_CONSUMED = Verdict(Meaning.CONSUMED)
_BY_NUMBER = {
    0: _CONSUMED,
    SLOW_DOWN: Verdict(Meaning.SLOW_DOWN),
    GIVEN_UP: Verdict(Meaning.GIVEN_UP),
    RETRY: Verdict(Meaning.RETRY),
}


def judge(body: bytes, hide: Callable[[str], str] = str) -> Verdict:
    """Say what the body of a reply with a status of success means.

    Args:
        body: What the receiver wrote.
        hide: Takes secrets out of a text before it is cut to a line.
    """
    if not body or (b"errno" not in body and b"\\u" not in body):
        return _CONSUMED
    try:
        reply: Any = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return _CONSUMED
    if not isinstance(reply, dict):
        return _CONSUMED
    errno = reply.get("errno")
    if errno is None or isinstance(errno, list | dict):
        return _CONSUMED
    number = _whole(errno)
    if number is None:
        return Verdict(Meaning.FAILED, f"errno {printable(hide(str(errno)))} is no number")
    known = _BY_NUMBER.get(number)
    if known is not None:
        return known
    said = reply.get("errmsg")
    return Verdict(Meaning.FAILED, f"errno {number}" + (f": {printable(hide(said))}" if isinstance(said, str) else ""))


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
