"""The arguments of each call, scanned; the protocol is the call's.

What is wrong with arguments always comes out as an ArgumentsError: the call is answered with a TApplicationException
of kind 7 and the connection lives (R, 1.1.8; D21). A known field that arrives with another type than its own is
skipped as an unknown field is, and then counts as absent.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import TypeVar

from proxy.wire import scan_binary, scan_compact
from proxy.wire.call import COMPACT, Call
from proxy.wire.errors import ArgumentsError
from proxy.wire.values import BatchCall, ConsumeResult, PullRequest, SendCall

_Result = TypeVar("_Result")
_Scanner = Callable[[bytes, int], _Result]


def _scan(call: Call, compact: _Scanner[_Result], binary: _Scanner[_Result]) -> _Result:
    try:
        return compact(call.frame, call.pos) if call.protocol == COMPACT else binary(call.frame, call.pos)
    except (IndexError, struct.error) as error:
        raise ArgumentsError(f"the arguments of {call.method} end early") from error
    except UnicodeDecodeError as error:
        raise ArgumentsError(f"a text in the arguments of {call.method} is no UTF-8") from error


def scan_pull(call: Call) -> PullRequest:
    """Scan the arguments of pull. Raises ArgumentsError."""
    return _scan(call, scan_compact.pull, scan_binary.pull)


def scan_submit(call: Call) -> list[ConsumeResult]:
    """Scan the arguments of submit into its chain, head first; empty when there is no result. Raises ArgumentsError."""
    return _scan(call, scan_compact.submit, scan_binary.submit)


def scan_send(call: Call) -> SendCall:
    """Scan the arguments of sendSync or sendAsync. Raises ArgumentsError."""
    return _scan(call, scan_compact.send, scan_binary.send)


def scan_send_batch(call: Call) -> BatchCall:
    """Scan the arguments of sendBatchSync, in the order of the list. Raises ArgumentsError."""
    return _scan(call, scan_compact.send_batch, scan_binary.send_batch)
