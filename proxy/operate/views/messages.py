"""Stored messages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

from msgspec import UNSET, UnsetType

from broker.views import View


class MessageView(View, frozen=True, kw_only=True):
    """A stored message, with all fields of its record; one in Kafka has no hosts and no place in the commit log.

    Attributes:
        topic: Its topic.
        queue: Its queue, in Kafka its partition.
        offset: Its offset in the queue.
        cluster: Name of its Kafka cluster; absent for one in the store.
        id: Its offsetMsgId: store host and commit-log offset; in Kafka "".
        unique_key: UNIQ_KEY, the id that its producer received; "" without one.
        key: Its keys; null without any.
        tag: Its tags; null without any.
        store_ms: When it was stored; in Kafka the timestamp of its record.
        store_host: Address of the broker that stored it; in Kafka "".
        born_ms: When its producer made it, by the producer's clock.
        born_host: Address of the producer; in Kafka "".
        physical: Commit-log offset of its record; in Kafka -1.
        bytes: Size of its record, in bytes.
        sys_flag: RocketMQ's system flag.
        flag: RocketMQ's flag of the user's.
        reconsume_times: RocketMQ's count of redeliveries.
        prepared_offset: Commit-log offset of the record that it replaces; 0 for none.
        properties: All properties, by name.
        trace_id: Its trace; null if none is known of it.
        trace_link: That trace in the viewer that `node.tracing.link` names; absent without one.
        body_problem: Why the body cannot be unpacked: `body` is as stored then. Absent where it can.
        body_bytes: Size of its body, unpacked, in bytes.
        body: The body, or its beginning.
        body_encoding: `utf-8`, or `base64` for other bytes.
        body_cut: Whether it is only the beginning.
        masked: Properties and JSON paths whose values are shown as `***`; absent where the topic has no `mask`.
    """

    topic: str
    queue: int
    offset: int
    cluster: str | UnsetType = UNSET
    id: str
    unique_key: str
    key: str | None
    tag: str | None
    store_ms: int
    store_host: str
    born_ms: int
    born_host: str
    physical: int
    bytes: int
    sys_flag: int
    flag: int
    reconsume_times: int
    prepared_offset: int
    properties: Mapping[str, str]
    trace_id: str | None = None
    trace_link: str | UnsetType = UNSET
    body_problem: str | UnsetType = UNSET
    body_bytes: int
    body: str
    body_encoding: Literal["utf-8", "base64"]
    body_cut: bool
    masked: Sequence[str] | UnsetType = UNSET


class MessagesAnswer(View, frozen=True, kw_only=True):
    """Messages that were found.

    Attributes:
        now_ms: Now, by the node's wall clock.
        log_end: Commit-log offset behind the last message that is visible; in Kafka 0.
        messages: In the order of the log, in Kafka by partition; with a key, in the store, the newest first.
        cursor: Pass it to continue after them; null at the end. In Kafka it is `PARTITION:OFFSET`.
        share: How much of the requested part of the topic was looked at, 0 to 1; absent for the store.
        damaged: Records that were left out because they cannot be read.
        unsearched_bytes: Bytes of the log that a search by key could not look at; messages may be missing then.
    """

    now_ms: int
    log_end: int
    messages: Sequence[MessageView]
    cursor: int | str | None = None
    share: float | UnsetType = UNSET
    damaged: int = 0
    unsearched_bytes: int = 0
