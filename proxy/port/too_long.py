"""Answers to calls whose frame is too long: they were read to their end, and only their heads were kept."""

from __future__ import annotations

from proxy.wire.call import Call
from proxy.wire.errors import APPLICATION_PROTOCOL_ERROR
from proxy.wire.generic.calls import encode_application_exception
from proxy.wire.replies import encode_delay_result_reply, encode_result_reply
from proxy.wire.transactions import encode_half_reply
from pyddmq.codes import ResultCode

_RESULTS = frozenset(("sendSync", "sendAsync", "sendBatchSync", "endTransaction"))
_CARRY_RESULTS = frozenset(("pull", "submit", "ack", "fetchChecks"))


def answer_too_long(call: Call, text: str) -> bytes | None:
    """Return the reply to a call that was not read, in the call's own result where it has one.

    Returns:
        None for calls that carry results: client libraries throw these away with whatever answers them, and send them
        again where the connection ends.
    """
    if call.method in _RESULTS:
        return encode_result_reply(call, ResultCode.FAIL_ILLEGAL_MSG, text)
    if call.method == "sendDelaySync":
        return encode_delay_result_reply(call, ResultCode.FAIL_ILLEGAL_MSG, text, "")
    if call.method == "sendHalfSync":
        return encode_half_reply(call, ResultCode.FAIL_ILLEGAL_MSG, text)
    if call.method in _CARRY_RESULTS:
        return None
    return encode_application_exception(call, APPLICATION_PROTOCOL_ERROR, text)
