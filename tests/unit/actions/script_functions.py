"""Functions for the action Python."""

from __future__ import annotations

import sys

from pyddmq.actions import Failed, RetryLater, Status, Unprocessable
from pyddmq.scripts import Script

NOT_CALLABLE = 3


def enrich(message: Script) -> bool:
    """Change the body, gather all there is, and filter by a field."""
    if message.data.get("drop"):
        return False
    message.data["total"] = sum(message.data["prices"])
    message.add_header("X-Key", message.key)
    message.add_form("topic", message.topic)
    message.add_query("offset", message.offset)
    message.redis.set("a", 1)
    message.redis.delete("b", "c")
    message.redis.hset("h", "f", b"v")
    message.redis.hmset("h", {"f": 1.5, "g": "x"})
    message.redis.hdel("h", "f")
    message.redis.mset({"a": 1, "b": 2})
    message.hbase.put("t", "r", {"f:q": "ü"})
    message.hbase.append("t", "r", {"f:q": b"x"})
    message.hbase.increment("t", "r", {"f:n": 2})
    message.hbase.delete("t", "r", "f:q")
    return True


def broken(message: Script) -> bool:
    """Gather and change, and then fail."""
    message.data["changed"] = True
    message.add_form("half", "done")
    raise KeyError("price")


def forgets(message: Script) -> None:
    """Return nothing."""


def leaves(message: Script) -> bool:
    """End the program, as a script would."""
    sys.exit(1)


def says(message: Script) -> Status:
    """Do what the body says."""
    word = message.data["say"]
    if word == "failed":
        raise Failed("not today")
    if word == "never":
        raise Unprocessable("not ever")
    if word == "later" and not message.data.setdefault("again", message.now_ms > 10**15):
        raise RetryLater(10**13)
    return Status[word]


def wrong(message: Script) -> bool:
    """Gather what nobody could carry out."""
    what = message.data["what"]
    if what == "header":
        message.add_header("X", "a\r\nSet-Cookie: b")
    elif what == "redis":
        message.redis.set("a", [1])  # type: ignore[arg-type]
    elif what == "mset":
        message.redis.mset({})
    elif what == "column":
        message.hbase.put("t", "r", {"q": "x"})
    elif what == "none":
        message.hbase.put("t", "r", {})
    elif what == "cell":
        message.hbase.put("t", "r", {"f:q": 5})  # type: ignore[dict-item]
    elif what == "increment":
        message.hbase.increment("t", "r", {"f:q": 1.5})  # type: ignore[dict-item]
    return True


def as_bytes(message: Script) -> bool:
    """Set the body again."""
    message.data = bytes(message.body)
    return True


def as_bytearray(message: Script) -> bool:
    """Likewise, as bytes that can be changed."""
    message.data = bytearray(message.body)
    return True


def as_memoryview(message: Script) -> bool:
    """Likewise, as a view."""
    message.data = memoryview(message.body)
    return True
