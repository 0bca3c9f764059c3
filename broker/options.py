"""How a store is laid out and flushed. What features are set to, they are given themselves (`broker.features`)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreOptions:
    """How a store is laid out and flushed.

    Attributes:
        segment_bytes: Size of a commit-log file; fixed when the store is created.
        queue_file_units: Units of 20 bytes in a consume-queue file; fixed likewise.
        index_slots: Hash slots of an index file; fixed likewise.
        index_entries: Entries of an index file; fixed likewise.
        flush: `sync`: fdatasync before a publish is answered. `async`: within 500 ms.
        message_bytes_max: Largest body in bytes; topics of the broker's own take what is in the log already.
        queue_files_max: Files of consume queues that are open at once; the least recently used one is closed then.
        store_host: IPv4 address of this broker and its port as i32, 8 bytes, as records carry it.
    """

    segment_bytes: int = 64 << 20
    queue_file_units: int = 30_000
    index_slots: int = 100_000
    index_entries: int = 400_000
    flush: Literal["sync", "async"] = "sync"
    message_bytes_max: int = 4 << 20
    queue_files_max: int = 512
    store_host: bytes = b"\x7f\x00\x00\x01\x00\x00\x00\x00"

    def __post_init__(self) -> None:
        if self.segment_bytes < 1024 or self.queue_file_units < 1 or self.message_bytes_max < 1:
            raise ValueError("segment_bytes must be 1024 or more, queue_file_units and message_bytes_max 1 or more")
        if len(self.store_host) != 8:
            raise ValueError("store_host must be 8 bytes: an IPv4 address and the port as i32")
