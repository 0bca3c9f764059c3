"""What a group and its generations are put together from."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NoReturn

from broker.runtime.bundle import Runtime
from upstream.calls.node_calls import NodeCalls
from upstream.figures.endings import EndingHook
from upstream.job import GroupQueue, UpstreamJob
from upstream.progress.progress import Progress
from upstream.retry.dead_letters import DeadLetters
from upstream.retry.retry_topic import RetryTopic
from upstream.source import Broker, RetryQueues, StretchSource
from upstream.views import FetcherView
from upstream.waiting.buffer import BufferLimits, PullBuffer

DRAIN_SECONDS = 30.0
"""How long an old generation may take before the new one starts anyway (D22)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSeams:
    """What a node gives to a group.

    Attributes:
        broker: Where the messages are.
        retry_queues: Where failed messages wait outside of their queues; None: they wait in place.
        stretches: Reads queues for clients with offsets of their own; None: there are no low-level topics.
        progress: Trackers and ack journal.
        runtime: Time, loop, counts and log lines.
        endings: Listeners to what becomes of single messages.
        calls: Makes the calls of async and blocking actions; None where there is no event loop.
        may_hand_out: As of `PullBuffer`.
        when_durable: Reports, once, whether what has finished by now is durable; None: all is by the end of the turn.
        awaits_partitions: Whether the group may get queues that it has not had since the start; None: it has all.
    """

    broker: Broker
    progress: Progress
    runtime: Runtime
    retry_queues: RetryQueues | None = None
    stretches: StretchSource | None = None
    endings: EndingHook = field(default_factory=EndingHook)
    calls: NodeCalls | None = None
    may_hand_out: Callable[[], bool] | None = None
    when_durable: Callable[[Callable[[bool], None]], None] | None = None
    awaits_partitions: Callable[[], bool] | None = None


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


@dataclass(slots=True, kw_only=True)
class FetchHooks:
    """What a low-level group has of who serves its fetches (`upstream.fetch`), which is above it.

    Attributes:
        arrived: Told that something may be there to be fetched.
        fetchers: Tells who fetches.
    """

    arrived: Callable[[], None] = lambda: None
    fetchers: Callable[[], Sequence[FetcherView]] = tuple

    def serve(self, arrived: Callable[[], None], fetchers: Callable[[], Sequence[FetcherView]]) -> None:
        """Begin to serve; arguments as the attributes."""
        self.arrived, self.fetchers = arrived, fetchers


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupParts:
    """What the generations of one group share.

    Attributes:
        group: Name of the group.
        node: What it has of its node.
        buffer: Its pull buffer.
        dead_letters: Its dead-letter topic.
        retry_topic: Sends back what failed; None where failed messages wait in place.
        fetch_hooks: Who serves its fetches, where its clients do that.
    """

    group: str
    node: NodeSeams
    buffer: PullBuffer
    dead_letters: DeadLetters
    retry_topic: RetryTopic | None
    fetch_hooks: FetchHooks


class FetchedSource:
    """The source of a low-level generation (`upstream.source.Source`): clients fetch, so it reads and makes nothing."""

    bodies_come_later = False
    caught_up = True

    def __init__(self, hooks: FetchHooks) -> None:
        self.lag_max: int | None = None
        self._hooks = hooks

    def arrived(self) -> None:
        """Tell who serves fetches."""
        self._hooks.arrived()

    def read(self, count: int) -> list[UpstreamJob]:
        """Give nothing."""
        return []

    def add_group_queue(self, group_queue: GroupQueue) -> None:
        """Who serves fetches looks at the group's queues itself."""

    def close(self) -> None:
        """Nothing is under way."""

    def fetch(self, jobs: Sequence[UpstreamJob], there: Callable[[list[UpstreamJob]], None]) -> list[UpstreamJob]:
        """The bodies of no jobs are all in memory."""
        return list(jobs)

    def body(self, job: UpstreamJob) -> NoReturn:
        """There is no job."""
        raise AssertionError(f"{job} of a low-level topic")

    load = stored_ms = message_id = located = body

    def slices(self, jobs: Sequence[UpstreamJob]) -> NoReturn:
        """There is no job."""
        raise AssertionError(f"{jobs} of a low-level topic")
