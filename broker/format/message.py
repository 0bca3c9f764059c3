"""A stored message with everything that its record says, for people and tools; the hot path has no use for it."""

from __future__ import annotations

from dataclasses import dataclass

from broker.format.body import BODY_BYTES_MAX, SYS_PACKED, unpack
from broker.format.properties import parse_properties
from broker.format.record import (
    HEADER,
    SYS_BORN_HOST_V6,
    SYS_STORE_HOST_V6,
    born_host,
    born_timestamp,
    locate,
    physical_offset,
    prepared_offset,
    queue_id,
    queue_offset,
    reconsume_times,
    store_timestamp,
    strip_own,
    sys_flag,
)

_FLAG_AT = 16
_OFFSET_BYTES = 8
assert HEADER.size == 88


@dataclass(frozen=True, slots=True, kw_only=True)
class LogMessage:
    """One record of the log.

    Attributes:
        topic: As stored.
        queue_id: Its queue.
        offset: Its offset in the queue.
        physical: Its commit-log offset.
        size: Bytes of the record.
        born_ms: When the producer made it, ms since the epoch, by the producer's clock.
        born_host: Address of the producer, 4 or 16 bytes, and i32 port.
        store_ms: When it was stored, ms since the epoch, by the broker's clock.
        store_host: Address of the broker, likewise.
        sys_flag: RocketMQ's flags of compression, transactions and address lengths.
        flag: The producer's own.
        reconsume_times: How often it was redelivered before this record.
        prepared_offset: Commit-log offset of the record that this one replaces, 0 for none.
        stored_body: The body as it is stored, a slice of the mapped log; maybe compressed.
        properties: All of them but the broker's sum and batch mark.
    """

    topic: str
    queue_id: int
    offset: int
    physical: int
    size: int
    born_ms: int
    born_host: bytes
    store_ms: int
    store_host: bytes
    sys_flag: int
    flag: int
    reconsume_times: int
    prepared_offset: int
    stored_body: memoryview
    properties: dict[str, str]

    @property
    def id(self) -> str:
        """RocketMQ's offsetMsgId: store host and commit-log offset in 32 (IPv6: 56) hex digits."""
        return (self.store_host + self.physical.to_bytes(_OFFSET_BYTES, "big")).hex().upper()

    @property
    def unique_key(self) -> str:
        """UNIQ_KEY, "" when there is none."""
        return self.properties.get("UNIQ_KEY", "")

    def body(self, limit: int = BODY_BYTES_MAX) -> bytes:
        """Return the body as it was sent, unpacked where RocketMQ's client had compressed it.

        Raises:
            BodyUnusable: It cannot be unpacked, or is larger than `limit` bytes then.
        """
        if not self.sys_flag & SYS_PACKED:
            return bytes(self.stored_body)
        return unpack(self.stored_body, self.sys_flag, limit)


def message_of(record: memoryview) -> LogMessage:
    """Take a whole record apart.

    Raises:
        DamagedRecord: Its lengths do not add up.
    """
    view, body_at, body_end, block_at, end = locate(record)
    flags = sys_flag(record)
    width = 1 if record[7] == 0xA7 else 2
    born_bytes = 20 if flags & SYS_BORN_HOST_V6 else 8
    host_at = 48 + born_bytes + 8
    return LogMessage(
        topic=bytes(view[body_end + width : block_at - 2]).decode("utf-8", "replace"),
        queue_id=queue_id(record),
        offset=queue_offset(record),
        physical=physical_offset(record),
        size=len(record),
        born_ms=born_timestamp(record),
        born_host=born_host(record),
        store_ms=store_timestamp(record),
        store_host=bytes(record[host_at : host_at + (20 if flags & SYS_STORE_HOST_V6 else 8)]),
        sys_flag=flags,
        flag=int.from_bytes(record[_FLAG_AT : _FLAG_AT + 4], "big", signed=True),
        reconsume_times=reconsume_times(record),
        prepared_offset=prepared_offset(record),
        stored_body=view[body_at:body_end],
        properties=parse_properties(strip_own(bytes(view[block_at:end]))),
    )


def physical_of_id(text: str) -> int | None:
    """Commit-log offset in an offsetMsgId, None when the text cannot be one."""
    if len(text) not in (32, 56):
        return None
    try:
        raw = bytes.fromhex(text)
    except ValueError:
        return None
    # Spaces are legal between fromhex's digits, not here.
    return int.from_bytes(raw[-_OFFSET_BYTES:], "big") if len(raw) * 2 == len(text) else None
