"""The structs of both services for Apache Thrift's Python library, written by hand: an independent reading of the IDL.

`thrift_spec` is the form that Apache's compiler generates: per field id (id, type, name, type arguments, default).
"""

from __future__ import annotations

from typing import Any

from thrift.protocol.TBase import TBase, TExceptionBase
from thrift.Thrift import TType

_STRINGS = (TType.STRING, "UTF8", TType.STRING, "UTF8", False)
_STRING_TO_I64 = (TType.STRING, "UTF8", TType.I64, None, False)
_TOPICS = (TType.STRING, "UTF8", TType.MAP, _STRING_TO_I64, False)
_OFFSETS = (TType.I64, None, False)


def _spec(*fields: tuple[Any, ...]) -> tuple[Any, ...]:
    """Place (id, type, name, arguments, default) at the index of its id."""
    last = max((field[0] for field in fields), default=-1)
    placed: list[Any] = [None] * (last + 1)
    for field in fields:
        placed[field[0]] = field
    return tuple(placed)


def _text(field_id: int, name: str) -> tuple[Any, ...]:
    return (field_id, TType.STRING, name, "UTF8", None)


def _binary(field_id: int, name: str) -> tuple[Any, ...]:
    return (field_id, TType.STRING, name, "BINARY", None)


def _i32(field_id: int, name: str, default: int | None = None) -> tuple[Any, ...]:
    return (field_id, TType.I32, name, None, default)


def _i64(field_id: int, name: str, default: int | None = None) -> tuple[Any, ...]:
    return (field_id, TType.I64, name, None, default)


def _map(field_id: int, name: str, arguments: Any = _STRINGS) -> tuple[Any, ...]:
    return (field_id, TType.MAP, name, arguments, None)


def _offsets(field_id: int, name: str) -> tuple[Any, ...]:
    return (field_id, TType.LIST, name, _OFFSETS, None)


def _struct(field_id: int, name: str, kind: Any) -> tuple[Any, ...]:
    return (field_id, TType.STRUCT, name, [kind, kind.thrift_spec], None)


def _structs(field_id: int, name: str, kind: Any) -> tuple[Any, ...]:
    return (field_id, TType.LIST, name, (TType.STRUCT, [kind, kind.thrift_spec], False), None)


class _Struct:
    """A struct with an attribute per field, None where absent."""

    thrift_spec: tuple[Any, ...] = ()

    def __init__(self, **values: Any) -> None:
        for field in self.thrift_spec:
            if field is not None:
                setattr(self, field[2], values.get(field[2]))


class Struct(_Struct, TBase):  # type: ignore[misc]  # Apache's library has no types
    """Base of the structs."""


class ExceptionStruct(_Struct, TExceptionBase):  # type: ignore[misc]  # Apache's library has no types
    """Base of the declared exceptions."""


def _make(name: str, *fields: tuple[Any, ...], base: type = Struct) -> Any:
    return type(name, (base,), {"thrift_spec": _spec(*fields)})


ConsumedMessage = _make(
    "Message",
    _text(1, "key"),
    _binary(2, "value"),
    _text(3, "tag"),
    _i64(4, "offset"),
    _map(5, "properties"),
    _i64(101, "storeTimestamp"),
    _i64(102, "bornTimestamp"),
    _i64(103, "delivery"),
)
Context = _make("Context", _text(1, "groupId"), _text(2, "topic"), _text(3, "qid"))
ConsumeResult = _make("ConsumeResult")
ConsumeResult.thrift_spec = _spec(
    _struct(1, "context", Context),
    _offsets(3, "successOffsets"),
    _offsets(4, "failOffsets"),
    (10, TType.STRUCT, "nextResult", [ConsumeResult, None], None),
    _map(101, "deliveries", (TType.I64, None, TType.I64, None, False)),
    _map(102, "reasons", (TType.I64, None, TType.STRING, "UTF8", False)),
)
ConsumeResult.thrift_spec[10][3][1] = ConsumeResult.thrift_spec
PullRequest = _make(
    "PullRequest",
    _text(1, "groupId"),
    _text(2, "topic"),
    _i32(10, "maxBatchSize"),
    _i32(11, "maxLingerTime"),
    _struct(50, "result", ConsumeResult),
    _text(60, "version"),
)
PullResponse = _make("PullResponse", _struct(1, "context", Context), _structs(2, "messages", ConsumedMessage))
PullException = _make(
    "PullException", _i32(1, "code"), _text(2, "message"), _i32(101, "retryAfterMs"), base=ExceptionStruct
)
AccessDenied = _make("AccessDenied", _i32(1, "code"), _text(2, "message"), base=ExceptionStruct)
Principal = _make("Principal", _text(1, "name"), _i64(2, "expiresMs"))
ConsumeStatsRequest = _make("ConsumeStatsRequest", _text(1, "group"), _text(2, "topic"), _text(3, "version"))
ConsumeStats = _make(
    "ConsumeStats",
    _text(1, "group"),
    _text(2, "topic"),
    _map(3, "consumeOffsets", _STRING_TO_I64),
    _map(4, "produceOffsets", _STRING_TO_I64),
    _map(101, "startOffsets", _STRING_TO_I64),
)
FetchRequest = _make(
    "FetchRequest",
    _text(1, "consumerId"),
    _text(2, "groupId"),
    _text(3, "cluster"),
    _map(4, "fetchOffset", _TOPICS),
    _i32(10, "maxBatchSize"),
    _i32(11, "maxLingerTime"),
    _text(60, "version"),
    (101, TType.BOOL, "onlyNamed", None, None),
)
QidResponse = _make(
    "QidResponse",
    _text(1, "topic"),
    _text(2, "qid"),
    _i64(3, "nextRequestOffset"),
    _structs(10, "messages", ConsumedMessage),
)
FetchResponse = _make("FetchResponse", _i32(1, "code"), _structs(10, "results", QidResponse))
AckResult = _make(
    "AckResult", _text(1, "consumerId"), _text(2, "groupId"), _text(3, "cluster"), _map(4, "offsets", _TOPICS)
)

ProducedMessage = _make(
    "Message",
    _text(1, "topic"),
    _text(2, "key"),
    _text(3, "value"),
    _i64(4, "hashId", 0),
    _text(5, "tags"),
    _i32(6, "partitionId", -1),
    _binary(7, "body"),
    _text(8, "version"),
    _map(9, "properties"),
    _i32(101, "delayLevel"),
    _i64(102, "deliverAtMs"),
    _i64(103, "delayMs"),
    _text(104, "uniqKey"),
)
Receipt = _make("Receipt", _text(1, "msgId"), _text(2, "qid"), _i64(3, "offset"), _text(4, "handle"))
Result = _make(
    "Result",
    _i32(1, "code"),
    _text(2, "msg"),
    _text(3, "key"),
    _text(101, "msgId"),
    _text(102, "qid"),
    _i64(103, "offset"),
    _text(104, "handle"),
    _structs(105, "receipts", Receipt),
    _i32(106, "repeat"),
    _i32(107, "retryAfterMs"),
)
Write = _make(
    "Write",
    _text(1, "name"),
    _text(2, "producer"),
    _i64(3, "batch"),
    _text(4, "run"),
    _i32(5, "partition"),
    _i64(6, "rows"),
    _text(7, "digest"),
    (8, TType.BOOL, "ends", None, None),
    _text(9, "topic"),
)

DelayMessage = _make(
    "DelayMessage",
    _text(1, "topic"),
    _text(2, "uniqDelayMsgId"),
    _binary(3, "body"),
    _text(4, "tags"),
    _i32(5, "action"),
    _i64(6, "timestamp"),
    _i32(7, "dmsgtype"),
    _i64(8, "interval"),
    _i64(9, "expire"),
    _i64(10, "times"),
    _text(11, "uuid"),
    _text(13, "version"),
    _map(14, "properties"),
    _text(102, "uniqKey"),
)
DelayResult = _make(
    "DelayResult",
    _i32(1, "code"),
    _text(2, "msg"),
    _text(3, "uniqDelayMsgId"),
    _i32(101, "cancelOutcome"),
    _i32(106, "repeat"),
    _i32(107, "retryAfterMs"),
)
HalfResult = _make(
    "HalfResult",
    _i32(1, "code"),
    _text(2, "msg"),
    _text(3, "key"),
    _text(4, "transactionId"),
    _text(5, "handle"),
    _i64(101, "offset"),
    _i32(106, "repeat"),
    _i32(107, "retryAfterMs"),
)
EndTransaction = _make(
    "EndTransaction",
    _text(1, "producerGroup"),
    _text(2, "handle"),
    _i32(3, "state"),
    (4, TType.BOOL, "fromCheck", None, None),
    _text(5, "remark"),
)
CheckRequest = _make(
    "CheckRequest",
    _text(1, "producerGroup"),
    _i32(10, "maxBatchSize"),
    _i32(11, "maxLingerTime"),
    _structs(20, "answers", EndTransaction),
)
TransactionCheck = _make(
    "TransactionCheck",
    _text(1, "handle"),
    _text(2, "transactionId"),
    _i32(3, "checkTimes"),
    _struct(4, "message", ProducedMessage),
    _i64(5, "bornTimestamp"),
)

ARGUMENTS: dict[str, Any] = {
    "pull": _make("pull_args", _struct(1, "request", PullRequest)),
    "submit": _make("submit_args", _struct(1, "result", ConsumeResult)),
    "getConsumeStats": _make("stats_args", _struct(1, "request", ConsumeStatsRequest)),
    "fetch": _make("fetch_args", _struct(1, "request", FetchRequest)),
    "ack": _make("ack_args", _struct(1, "result", AckResult)),
    "sendSync": _make("sendSync_args", _struct(1, "message", ProducedMessage), _i64(2, "timeout")),
    "sendBatchSync": _make(
        "sendBatchSync_args",
        _structs(1, "messages", ProducedMessage),
        (101, TType.BOOL, "receipts", None, None),
        _struct(102, "declaration", Write),
    ),
    "sendAsync": _make("sendAsync_args", _struct(1, "message", ProducedMessage)),
    "sendDelaySync": _make("sendDelaySync_args", _struct(1, "delayMessage", DelayMessage), _i64(2, "timeout")),
    "sendHalfSync": _make(
        "sendHalfSync_args", _struct(1, "message", ProducedMessage), _text(2, "producerGroup"), _i64(3, "timeout")
    ),
    "endTransaction": _make("endTransaction_args", _struct(1, "decision", EndTransaction)),
    "fetchChecks": _make("fetchChecks_args", _struct(1, "request", CheckRequest)),
    "authenticate": _make("authenticate_args", _text(1, "token")),
}
_ERROR = _struct(1, "error", PullException)
_BOOL = (0, TType.BOOL, "success", None, None)
RESULTS: dict[str, Any] = {
    "pull": _make("pull_result", _struct(0, "success", PullResponse), _ERROR),
    "submit": _make("submit_result", _BOOL, _ERROR),
    "getConsumeStats": _make("stats_result", _structs(0, "success", ConsumeStats), _ERROR),
    "fetch": _make("fetch_result", _struct(0, "success", FetchResponse)),
    "ack": _make("ack_result", _BOOL),
    "sendSync": _make("sendSync_result", _struct(0, "success", Result)),
    "sendBatchSync": _make("sendBatchSync_result", _struct(0, "success", Result)),
    "sendAsync": _make("sendAsync_result", _struct(0, "success", Result)),
    "sendDelaySync": _make("sendDelaySync_result", _struct(0, "success", DelayResult)),
    "sendHalfSync": _make("sendHalfSync_result", _struct(0, "success", HalfResult)),
    "endTransaction": _make("endTransaction_result", _struct(0, "success", Result)),
    "fetchChecks": _make("fetchChecks_result", _structs(0, "success", TransactionCheck)),
    "authenticate": _make("authenticate_result", _struct(0, "success", Principal), _struct(1, "error", AccessDenied)),
}


def ddmqs(kind: Any) -> Any:
    """A struct as DDMQ's own IDL has it, without the fields that are ours (101 and above); so are structs in it."""
    fields = [field for field in kind.thrift_spec if field is not None and field[0] < 101]
    return _make(kind.__name__, *[(*field[:3], _without_ours(field[1], field[3]), field[4]) for field in fields])


def _without_ours(kind: int, arguments: Any) -> Any:
    if kind == TType.STRUCT and not issubclass(arguments[0], ExceptionStruct):
        known = ddmqs(arguments[0])
        return [known, known.thrift_spec]
    return arguments


def with_field(kind: Any, field_id: int, name: str) -> Any:
    """A struct with one more text, such as a newer peer might send."""
    return _make(kind.__name__, *[field for field in kind.thrift_spec if field is not None], _text(field_id, name))


def to_plain(value: Any) -> Any:
    """Return an Apache value as the generic codec has it: dicts without absent fields."""
    if isinstance(value, Struct | ExceptionStruct):
        fields = [field[2] for field in value.thrift_spec if field is not None]
        return {name: to_plain(getattr(value, name)) for name in fields if getattr(value, name) is not None}
    if isinstance(value, list):
        return [to_plain(each) for each in value]
    if isinstance(value, dict):
        return {key: to_plain(each) for key, each in value.items()}
    return value


def from_plain(kind: Any, values: dict[str, Any]) -> Any:
    """Build an Apache struct from dicts."""
    found = kind()
    for field in kind.thrift_spec:
        if field is not None and values.get(field[2]) is not None:
            setattr(found, field[2], _build(field[1], field[3], values[field[2]]))
    return found


def _build(kind: int, arguments: Any, value: Any) -> Any:
    if kind == TType.STRUCT:
        return from_plain(arguments[0], value)
    if kind == TType.LIST:
        return [_build(arguments[0], arguments[1], each) for each in value]
    return value
