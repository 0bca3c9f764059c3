"""The arguments of each call, scanned; the protocol is the call's.

What is wrong with arguments always comes out as an ArgumentsError: the call is answered with a TApplicationException
of kind 7 and the connection lives (R, 1.1.8; D21). A known field that arrives with another type than its own is
skipped as an unknown field is, and then counts as absent.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, TypeVar

from proxy.wire import binary, compact
from proxy.wire.call import COMPACT, Call
from proxy.wire.errors import ArgumentsError
from proxy.wire.generic.calls import decode_arguments
from proxy.wire.reading import ProtocolReader
from proxy.wire.scanning import scan_pull as pulls
from proxy.wire.scanning import scan_send as sends
from proxy.wire.values import BatchCall, ConsumeResult, DelayCall, PullRequest, SendCall, SendMessage, StatsRequest

_Result = TypeVar("_Result")
_Scanner = Callable[[ProtocolReader, bytes, int], _Result]


def _scan(call: Call, scan: _Scanner[_Result]) -> _Result:
    try:
        return scan(compact.READING if call.protocol == COMPACT else binary.READING, call.frame, call.pos)
    except (IndexError, struct.error) as error:
        raise ArgumentsError(f"the arguments of {call.method} end early") from error
    except UnicodeDecodeError as error:
        raise ArgumentsError(f"a string in the arguments of {call.method} is not UTF-8") from error


def scan_pull(call: Call) -> PullRequest:
    """Scan the arguments of pull. Raises ArgumentsError."""
    return _scan(call, pulls.pull)


def scan_submit(call: Call) -> list[ConsumeResult]:
    """Scan the arguments of submit into its chain, head first; empty when there is no result. Raises ArgumentsError."""
    return _scan(call, pulls.submit)


def scan_send(call: Call) -> SendCall:
    """Scan the arguments of sendSync or sendAsync. Raises ArgumentsError."""
    return _scan(call, sends.send)


def scan_sends(calls: list[Call]) -> list[tuple[SendMessage, int | None] | None]:
    """Scan the arguments of calls of sendSync and sendAsync; None of those that `scan_send` is to scan."""
    return sends.usual_sends(calls)


def scan_send_batch(call: Call) -> BatchCall:
    """Scan the arguments of sendBatchSync, in the order of the list. Raises ArgumentsError."""
    return _scan(call, sends.send_batch)


def scan_stats(call: Call) -> StatsRequest:
    """Decode the arguments of getConsumeStats. Raises ArgumentsError."""
    request = _argument(call, "request")
    return StatsRequest(request["group"], request.get("topic"), request.get("version"))


def scan_delay(call: Call) -> DelayCall:
    """Decode the arguments of sendDelaySync. Raises ArgumentsError."""
    arguments = decode_arguments(call)
    if "delayMessage" not in arguments:
        raise ArgumentsError("sendDelaySync without its argument delayMessage")
    return DelayCall(arguments["delayMessage"], arguments.get("timeout"))


def scan_fetch(call: Call) -> dict[str, Any]:
    """Decode the FetchRequest of fetch: field name to value. Raises ArgumentsError."""
    return _argument(call, "request")


def scan_ack(call: Call) -> dict[str, Any]:
    """Decode the AckResult of ack: field name to value. Raises ArgumentsError."""
    return _argument(call, "result")


def _argument(call: Call, name: str) -> dict[str, Any]:
    found: dict[str, Any] | None = decode_arguments(call).get(name)
    if found is None:
        raise ArgumentsError(f"{call.method} without its argument {name}")
    return found
