"""What a group and its generations are put together from."""

from __future__ import annotations

from dataclasses import dataclass, field

from broker.runtime.metrics import Metrics
from broker.runtime.rate_limited_log import Notices
from broker.runtime.seams import Clock, Scheduler
from broker.store import Store
from upstream.delivery.buffer import BufferLimits, PullBuffer
from upstream.progress.progress import Progress
from upstream.retry.dead_letters import DeadLetters
from upstream.retry.retry_topic import RetryTopic

DRAIN_SECONDS = 30.0
"""How long an old generation may take before the new one starts anyway (D22)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Runtime:
    """What a node gives to all of its groups.

    Attributes:
        store: The broker.
        progress: Trackers and ack journal.
        clock: Wall and monotonic time.
        scheduler: The event loop.
        metrics: The node's registry.
        notices: Rate-limited log lines.
    """

    store: Store
    progress: Progress
    clock: Clock
    scheduler: Scheduler
    metrics: Metrics
    notices: Notices


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupLimits:
    """Bounds of one group; a reload may change them.

    Attributes:
        buffer: Of its pull buffer.
        waiting_max: Jobs of one subscription that may wait behind their keys; then reading stops (D15).
        drain_seconds: How long a replaced generation may take to drain (D22).
    """

    buffer: BufferLimits = field(default_factory=BufferLimits)
    waiting_max: int = 100_000
    drain_seconds: float = DRAIN_SECONDS


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupParts:
    """What the generations of one group share.

    Attributes:
        group: Name of the group.
        runtime: What it has of its node.
        buffer: Its pull buffer.
        dead_letters: Its dead-letter topic.
        retry_topic: Sends back what failed.
    """

    group: str
    runtime: Runtime
    buffer: PullBuffer
    dead_letters: DeadLetters
    retry_topic: RetryTopic
