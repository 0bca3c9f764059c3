"""Thrift on the wire, without any I/O: bytes in, named tuples out, and back.

`frames` cuts a byte stream into frames, `call` reads the header of one, `scan` its arguments, `replies` and
`pull_reply` write the answers, `generic` does all of that for any method with dicts (cold methods).
Both families of errors are in `errors`: what the peer did wrong, and what we did.
"""

from __future__ import annotations

from proxy.wire.call import BINARY, COMPACT, Call, parse_call
from proxy.wire.errors import (
    APPLICATION_INTERNAL_ERROR,
    APPLICATION_PROTOCOL_ERROR,
    APPLICATION_UNKNOWN_METHOD,
    ArgumentsError,
    FatalWireError,
    FrameError,
    TextError,
    WireError,
    WireMisuse,
)
from proxy.wire.fetch_reply import QueueMessages, encode_fetch_refusal, encode_fetch_reply
from proxy.wire.frames import FrameSplitter
from proxy.wire.generic.calls import (
    decode_arguments,
    encode_application_exception,
    encode_reply,
)
from proxy.wire.pull_reply import encode_pull_reply
from proxy.wire.replies import (
    encode_bool_reply,
    encode_delay_result_reply,
    encode_empty_pull_reply,
    encode_pull_exception,
    encode_result_reply,
    encode_stats_reply,
)
from proxy.wire.scanning.scan import (
    scan_ack,
    scan_delay,
    scan_fetch,
    scan_pull,
    scan_send,
    scan_send_batch,
    scan_stats,
    scan_submit,
)
from proxy.wire.transactions import (
    CheckCall,
    CheckRow,
    Ending,
    HalfCall,
    encode_checks_reply,
    encode_half_reply,
    scan_end,
    scan_fetch_checks,
    scan_half,
)
from proxy.wire.values import (
    BatchCall,
    ConsumeResult,
    DelayCall,
    Properties,
    PullRequest,
    Receipt,
    SendCall,
    SendMessage,
    StatsRequest,
)
from pyddmq.codes import PullCode, ResultCode

__all__ = [
    "APPLICATION_INTERNAL_ERROR",
    "APPLICATION_PROTOCOL_ERROR",
    "APPLICATION_UNKNOWN_METHOD",
    "BINARY",
    "COMPACT",
    "ArgumentsError",
    "BatchCall",
    "Call",
    "CheckCall",
    "CheckRow",
    "ConsumeResult",
    "DelayCall",
    "Ending",
    "FatalWireError",
    "FrameError",
    "FrameSplitter",
    "HalfCall",
    "Properties",
    "PullCode",
    "PullRequest",
    "QueueMessages",
    "Receipt",
    "ResultCode",
    "SendCall",
    "SendMessage",
    "StatsRequest",
    "TextError",
    "WireError",
    "WireMisuse",
    "decode_arguments",
    "encode_application_exception",
    "encode_bool_reply",
    "encode_checks_reply",
    "encode_delay_result_reply",
    "encode_empty_pull_reply",
    "encode_fetch_refusal",
    "encode_fetch_reply",
    "encode_half_reply",
    "encode_pull_exception",
    "encode_pull_reply",
    "encode_reply",
    "encode_result_reply",
    "encode_stats_reply",
    "parse_call",
    "scan_ack",
    "scan_delay",
    "scan_end",
    "scan_fetch",
    "scan_fetch_checks",
    "scan_half",
    "scan_pull",
    "scan_send",
    "scan_send_batch",
    "scan_stats",
    "scan_submit",
]
