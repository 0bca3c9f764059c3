"""What a node is put together from: the seams, and each part as the configuration wants it.

`proxy.node` decides when a part is made and how parts meet; here stands only how one is made.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Generator
from dataclasses import dataclass

from broker.metrics import Metrics
from broker.recovery import RecoveryProgress
from broker.retention import RetentionLimits
from broker.seams import Clock, Disk
from broker.store import Store, StoreOptions
from conf import NodeConfig
from proxy.network import DESCRIPTORS_UNBOUNDED, Network
from proxy.server import ServerLimits
from upstream.buffer import BufferLimits
from upstream.progress import Progress


@dataclass(frozen=True, slots=True, kw_only=True)
class Seams:
    """What a node takes from the outside world.

    Attributes:
        descriptors_max: As in `ServerLimits`.
        step_pause_seconds: Time left to others between two steps of a recovery; 0 is one turn of the loop.
    """

    loop: asyncio.AbstractEventLoop
    clock: Clock
    disk: Disk
    randomness: random.Random
    network: Network
    descriptors_max: int = DESCRIPTORS_UNBOUNDED
    step_pause_seconds: float = 0.0


def opening_store(node: NodeConfig, seams: Seams, metrics: Metrics) -> Generator[RecoveryProgress, None, Store]:
    """Open the store and recover it, in steps. Raises StoreError."""
    options = StoreOptions(
        segment_bytes=node.segment_bytes,
        queue_file_units=node.queue_file_units,
        flush=node.flush,
        message_bytes_max=node.max_message_bytes,
        refuse_pending=node.refuse_pending,
    )
    return Store.opening(
        node.data, options=options, disk=seams.disk, clock=seams.clock, random=seams.randomness, metrics=metrics
    )


def opening_progress(node: NodeConfig, seams: Seams, metrics: Metrics, store: Store) -> Generator[None, None, Progress]:
    """Open trackers and ack journal of a store that has just been opened, in steps. Raises StoreError."""
    return Progress.opening(
        node.data,
        store=store,
        disk=seams.disk,
        clock=seams.clock,
        metrics=metrics,
        scheduler=seams.loop,
        ack_flush=node.ack_flush,
        segment_bytes=node.ack_segment_bytes,
    )


def retention_limits(node: NodeConfig) -> RetentionLimits:
    """When log files go; 0 is no limit, like null."""
    return RetentionLimits(
        age_ms=int(node.retention_hours * 3_600_000) if node.retention_hours else None,
        log_bytes=node.retention_bytes or None,
        disk_ratio=node.retention_disk_ratio or None,
        disk_ratio_forced=node.retention_disk_ratio_forced or None,
    )


def server_limits(node: NodeConfig, seams: Seams) -> ServerLimits:
    """What the configuration allows one server's peers."""
    return ServerLimits(
        frame_bytes_max=node.max_read_buffer_bytes,
        output_bytes_max=node.output_buffer_bytes,
        outstanding_max=node.max_outstanding_per_connection,
        connections_max=node.max_connections,
        frame_seconds_max=node.frame_timeout / 1000,
        descriptors_max=seams.descriptors_max,
    )


def buffer_limits(node: NodeConfig) -> BufferLimits:
    """What the configuration allows one group's pull buffer."""
    return BufferLimits(reply_bytes_max=node.max_recv_msgs_length, parked_max=node.max_parked_pulls)
