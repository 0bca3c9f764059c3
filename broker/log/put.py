"""What is appended and where it went: `Put` and `LogPosition`.

`OWNER_NAME` is the property that holds the principal who stored a message that waits (docs/security.md). It goes with
the record wherever that is put again, so that a restart knows it. What was stored without access rules has
none, and belongs to no principal.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from broker.errors import StoreError
from broker.format.properties import find_property
from broker.queues.topics import Topic
from broker.runtime.seams import Buffer

OWNER_NAME = b"__PYDDMQ_OWNER"


def owned(put: Put, owner: str | None) -> Put:
    """Return a put that belongs to a principal; None: to none."""
    if owner is None:
        return put
    block = put.properties
    if block and not block.endswith(b"\x02"):
        block += b"\x02"
    return put._replace(properties=b"%b%b\x01%b\x02" % (block, OWNER_NAME, owner.encode()))


def owner_of(block: bytes) -> str:
    """Return the principal that a record with these properties belongs to; "" for none."""
    return (find_property(block, OWNER_NAME) or b"").decode("utf-8", "replace")


def is_foreign(owner: str, asking: str | None) -> bool:
    """Whether what belongs to `owner` is another principal's; None asks for all, and "" owns nothing."""
    return asking is not None and owner not in ("", asking)


class Put(NamedTuple):
    """One message to append; buffers are not copied before the write, so they must not change until then.

    Attributes:
        topic: Where to.
        queue_id: Which of its queues.
        body: Any bytes, also none.
        properties: RocketMQ's block (`broker.format.properties`), complete but for what the broker adds.
        tags: The TAGS value again, for the tags code; of a record of the schedule topic, the ms from its store
            timestamp to its due time, which its unit gets instead.
        unique_key: b"" has the broker stamp UNIQ_KEY; otherwise it is in `properties` already.
        prepared_offset: Commit-log offset of the record that this one replaces (D27).
        reconsume_times: How often the message was redelivered before.
        sys_flag: How the body is packed (`broker.format.body.SYS_PACKING`), for a copy of a record whose body stays as
            it is.
        flag: The producer's own number, an i32 that no broker looks at (RocketMQ's Message.flag).
    """

    topic: Topic
    queue_id: int
    body: Buffer
    properties: bytes
    tags: bytes | int = b""
    unique_key: bytes = b""
    prepared_offset: int = 0
    reconsume_times: int = 0
    sys_flag: int = 0
    flag: int = 0


class LogPosition(NamedTuple):
    """Where a message was put."""

    queue_id: int
    offset: int
    physical: int
    unique_key: bytes


Done = Callable[[StoreError | None], None]

Traced = Callable[[Sequence[Put], Sequence[LogPosition], Done | None], Done | None]
"""Called with messages that were staged and their `done`; returns what is called instead of that."""
