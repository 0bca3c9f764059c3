"""What the scanners return: named tuples, and slices of the frame where a slice will do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

Properties = tuple[tuple[bytes, ...], tuple[bytes, ...]]
"""User properties in the order of the wire: their names and their values, equally many, all valid UTF-8.

Apart, because the messages of a producer have the same names: who judged them once knows the tuple again.
"""


class ConsumeResult(NamedTuple):
    """One element of a chain of results. A null or incomplete context is kept as None; the service counts it (W5).

    Attributes:
        group: Context.groupId.
        topic: Context.topic.
        qid: Context.qid.
        success: Offsets that are done with.
        fail: Offsets that failed.
        deliveries: By offset the number of the delivery that is answered; None where the client says none.
        reasons: By offset why it failed, as it was sent but for its length; None where the client says none.
    """

    group: str | None
    topic: str | None
    qid: str | None
    success: list[int]
    fail: list[int]
    deliveries: dict[int, int] | None = None
    reasons: dict[int, bytes] | None = None


class PullRequest(NamedTuple):
    """A pull.

    Attributes:
        group: The consumer group.
        topic: None: any topic of the group.
        count_max: maxBatchSize as sent, or None.
        linger_ms: maxLingerTime as sent, or None.
        results: The chain of results that rides on the pull, flattened, its head first.
        version: The client library, or None.
    """

    group: str
    topic: str | None
    count_max: int | None
    linger_ms: int | None
    results: list[ConsumeResult]
    version: str | None


class StatsRequest(NamedTuple):
    """A getConsumeStats; `topic` None: every topic of the group."""

    group: str
    topic: str | None
    version: str | None


class SendMessage(NamedTuple):
    """A message as the producer sent it. Texts are UTF-8 bytes, checked; None is what was absent.

    Attributes:
        topic: b"" when it was absent.
        key: Message key.
        value: Text body of old clients.
        hash_id: 0 when absent.
        tags: Tags.
        partition_id: -1 when absent.
        body: A slice of the frame, which it keeps alive.
        version: The client library.
        properties: None when absent or empty.
        delay_level: Field 101.
        deliver_at_ms: Field 102.
        delay_ms: Field 103.
        unique_key: Field 104 as it came, whatever bytes it has.
    """

    topic: bytes
    key: bytes | None
    value: bytes | None
    hash_id: int
    tags: bytes | None
    partition_id: int
    body: memoryview | None
    version: bytes | None
    properties: Properties | None
    delay_level: int | None
    deliver_at_ms: int | None
    delay_ms: int | None
    unique_key: bytes | None = None


General = Callable[[bytes, memoryview, int], tuple[SendMessage, int]]
"""Scans any message of a send, given the frame, the same as a view, and where it begins; returns where it ends, too."""


class SendCall(NamedTuple):
    """A sendSync or sendAsync; `timeout_ms` is None when the argument is absent."""

    message: SendMessage
    timeout_ms: int | None


class BatchCall(NamedTuple):
    """A sendBatchSync; `receipts` says whether Result.receipts is wanted."""

    messages: list[SendMessage]
    receipts: bool


class Receipt(NamedTuple):
    """Where one message of a batch was stored; `handle` names a timer."""

    msg_id: str
    qid: str
    offset: int
    handle: str | None = None


class DelayCall(NamedTuple):
    """A sendDelaySync: the fields of its DelayMessage that were there, by name, and its timeout or None."""

    message: dict[str, Any]
    timeout_ms: int | None
