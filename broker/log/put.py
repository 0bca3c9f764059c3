"""What is appended and where it went: `Put` and `LogPosition`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from broker.errors import StoreError
from broker.queues.topics import Topic
from broker.runtime.seams import Buffer


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
