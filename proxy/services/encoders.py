"""How a send's answer is encoded, for each call: services hand this to the code that knows when to answer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from broker.log.put import LogPosition
from proxy.wire.call import Call
from pyddmq.codes import ResultCode

Stored = Callable[[Call, Sequence[LogPosition]], bytes]
"""Encodes the reply of a call whose messages are stored, given where."""


class Refused(Protocol):
    """Encodes the reply of a call that is refused: `encode_result_reply`, or that of another result."""

    def __call__(self, call: Call, code: ResultCode, text: str, /, *, retry_after_ms: int | None = None) -> bytes:
        """Encode it; `retry_after_ms` says when to try again."""
        ...
