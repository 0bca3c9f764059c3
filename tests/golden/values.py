"""What the golden frames hold, field by field: a second statement of what `Golden.java` writes."""

from __future__ import annotations

from typing import Any

STRANGE = "ä中😀\x00\u200b"
BODY = bytes((0, 1, 2, 127, 128, 255))
I32_MIN, I64_MIN, I64_MAX = -(1 << 31), -(1 << 63), (1 << 63) - 1


def context(group: str, topic: str, qid: str) -> dict[str, Any]:
    """A context with all fields."""
    return {"groupId": group, "topic": topic, "qid": qid}


_THIRD = {"context": context("g", "t3", "c_b_2"), "successOffsets": [], "failOffsets": []}
_SECOND = {
    "context": context("g", "t2", "c_b_1"),
    "successOffsets": [1, 2, 3],
    "failOffsets": [1 << 40],
    "nextResult": _THIRD,
}
_FIRST = {
    "context": context("g", "t", "c_b_0"),
    "successOffsets": [0, 63, 64, 8191, 8192, I64_MAX],
    "failOffsets": [5],
    "nextResult": _SECOND,
}
_LEAST = {"topic": "t", "hashId": 0, "partitionId": -1}
_FULL = {
    "topic": "orders",
    "key": "customer-7",
    "value": "old",
    "hashId": -7,
    "tags": "a||b",
    "partitionId": 3,
    "body": BODY,
    "version": "java-1.0",
    "properties": {"color": "red", "isPressureTraffic": "false"},
}
_STRANGE = {
    "topic": "t",
    "key": STRANGE,
    "hashId": I64_MIN,
    "tags": "",
    "partitionId": -2,
    "body": b"",
    "properties": {},
}
_LOW_LEVEL = {"consumerId": "1@host#0", "groupId": "g", "cluster": "c"}

CALLS: dict[str, tuple[str, int, dict[str, Any]]] = {
    "pull-least": ("pull", 1, {"request": {"groupId": "g"}}),
    "pull-all": (
        "pull",
        (1 << 31) - 1,
        {
            "request": {
                "groupId": "orders-billing",
                "topic": "orders",
                "maxBatchSize": 8,
                "maxLingerTime": 50,
                "result": _FIRST,
                "version": "java",
            }
        },
    ),
    "pull-unusual": (
        "pull",
        0,
        {"request": {"groupId": STRANGE, "topic": "", "maxBatchSize": I32_MIN, "maxLingerTime": -1}},
    ),
    "pull-newer": (
        "pull",
        7,
        {
            "request": {
                "groupId": "g",
                "maxBatchSize": 8,
                "result": {"context": context("g", "t", "q"), "successOffsets": [4]},
            }
        },
    ),
    "submit": ("submit", 6, {"result": _SECOND}),
    "submit-without-context": ("submit", 7, {"result": {"successOffsets": [1]}}),
    "stats": ("getConsumeStats", 11, {"request": {"group": "g"}}),
    "stats-of-topic": ("getConsumeStats", 12, {"request": {"group": "g", "topic": "t", "version": "v"}}),
    "fetch-least": ("fetch", 15, {"request": _LOW_LEVEL}),
    "fetch-all": (
        "fetch",
        16,
        {
            "request": {
                **_LOW_LEVEL,
                "fetchOffset": {"t": {"q": 3, "r": 4}, "u": {}},
                "maxBatchSize": 16,
                "maxLingerTime": 100,
                "version": "java",
            }
        },
    ),
    "ack": ("ack", 18, {"result": {**_LOW_LEVEL, "offsets": {"t": {"q": 4}}}}),
    "send-least": ("sendSync", 20, {"message": _LEAST, "timeout": 0}),
    "send": ("sendSync", 21, {"message": _FULL, "timeout": 50}),
    "send-unusual": ("sendSync", 22, {"message": _STRANGE, "timeout": -1}),
    "send-newer": ("sendSync", 23, {"message": {**_LEAST, "body": BODY}, "timeout": 50}),
    "send-async": ("sendAsync", 26, {"message": _FULL}),
    "send-batch": ("sendBatchSync", 28, {"messages": [_LEAST, _FULL, _STRANGE]}),
    "send-no-batch": ("sendBatchSync", 29, {"messages": []}),
    "delay-least": ("sendDelaySync", 31, {"delayMessage": {"topic": "t", "action": 1}, "timeout": 100}),
    "delay": (
        "sendDelaySync",
        32,
        {
            "delayMessage": {
                "topic": "t",
                "uniqDelayMsgId": "id",
                "body": BODY,
                "tags": "tag",
                "action": 2,
                "timestamp": 1_800_000_000,
                "dmsgtype": 4,
                "interval": 60,
                "expire": 1_900_000_000,
                "times": 3,
                "uuid": "uuid",
                "version": "java",
                "properties": {"a": "b"},
            },
            "timeout": 100,
        },
    ),
}
"""By case: method, sequence number, arguments."""

REPLIES: dict[str, tuple[str, int, dict[str, Any]]] = {
    "pulled-nothing": ("pull", 2, {"success": {"context": {}, "messages": []}}),
    "pulled": (
        "pull",
        3,
        {
            "success": {
                "context": context("g", "t", "pyddmq_broker-0_3"),
                "messages": [
                    {
                        "key": "key",
                        "value": BODY,
                        "tag": "tag",
                        "offset": 0,
                        "properties": {"color": "red", "b": STRANGE},
                    },
                    {"value": b"", "offset": 1},
                    {"key": STRANGE, "value": bytes(200), "offset": 1 << 50},
                ],
            }
        },
    ),
    "pull-refused": ("pull", 4, {"error": {"code": 2, "message": "no such group"}}),
    "submitted": ("submit", 8, {"success": True}),
    "not-submitted": ("submit", 9, {"success": False}),
    "submit-refused": ("submit", 10, {"error": {"code": 7, "message": "failed"}}),
    "stats-found": (
        "getConsumeStats",
        13,
        {
            "success": [
                {
                    "group": "g",
                    "topic": "t",
                    "consumeOffsets": {"q0": 5, "q1": -1},
                    "produceOffsets": {"q0": 1 << 33, "q1": 0},
                },
                {"group": "g", "topic": "u", "consumeOffsets": {}, "produceOffsets": {}},
            ]
        },
    ),
    "stats-none": ("getConsumeStats", 14, {"success": []}),
    "fetched": (
        "fetch",
        17,
        {
            "success": {
                "code": 0,
                "results": [
                    {
                        "topic": "t",
                        "qid": "q",
                        "nextRequestOffset": 4,
                        "messages": [{"key": "k", "value": BODY, "tag": "", "offset": 3}],
                    }
                ],
            }
        },
    ),
    "acked": ("ack", 19, {"success": True}),
    "sent": ("sendSync", 24, {"success": {"code": 0, "msg": "OK"}}),
    "not-sent": ("sendSync", 25, {"success": {"code": 11, "msg": STRANGE, "key": "customer-7"}}),
    "sent-async": ("sendAsync", 27, {"success": {"code": 0}}),
    "sent-batch": ("sendBatchSync", 30, {"success": {"code": 0, "msg": "OK"}}),
    "delayed": ("sendDelaySync", 33, {"success": {"code": 0, "msg": "OK", "uniqDelayMsgId": "id"}}),
    "not-delayed": ("sendDelaySync", 34, {"success": {"code": 18, "msg": "no", "uniqDelayMsgId": ""}}),
}
"""By case: method, sequence number, result struct."""

EXCEPTIONS: dict[str, tuple[str, int, tuple[int, str]]] = {
    "unknown-method": ("nothing", 5, (1, "Invalid method name: 'nothing'"))
}
"""By case: method, sequence number, kind and text of a TApplicationException."""

NEWER = frozenset(("pull-newer", "send-newer"))
"""Cases with fields of every type that no definition has: they are read, and never written."""
