"""What becomes of messages, as lines of the log: of each where `logLevel` is debug, and of each group once a minute.

Counters say how much happened (D25); a line per message is for finding one message, and costs what a line
costs. The line of a group and topic sums up its last minute, and is left out where nothing happened.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence

import structlog

from broker.runtime.bundle import Runtime
from broker.runtime.histogram import quantile_seconds
from broker.runtime.metrics import Rises
from proxy.recording.in_force import GROUPS_AT_ONCE, InForce
from upstream.figures import counters
from upstream.figures.endings import MessageEnding, ended_jobs
from upstream.figures.latency import END_TO_END_SECONDS
from upstream.job import DeliveredBatch, UpstreamJob

LISTENER = "lines"
_SUMMED = {
    "delivered": counters.DELIVERED,
    "finished": counters.FINISHED,
    "failed": counters.FAILED,
    "errors": counters.ERRORS,
    "timeouts": counters.TIMEOUTS,
    "dead_letters": counters.DEAD_LETTERS,
    "stopped": counters.STOPPED,
    "skipped": counters.SKIPPED,
}
_log = structlog.get_logger()

Series = tuple[str, str]
"""Group and topic."""


class MessageLines:
    """Writes a line for each message of one group that ends: an `EndingListener`.

    Args:
        group: Its name.
        runtime: The node's.
    """

    def __init__(self, group: str, runtime: Runtime) -> None:
        self._group = group
        self._clock = runtime.clock

    def handed_out(self, delivery: DeliveredBatch) -> None:
        """Nothing ends by it."""

    def finished(self, delivery: DeliveredBatch, offsets: Sequence[int]) -> None:
        """Write lines for messages of one delivery that its client finished."""
        for job in ended_jobs(delivery, offsets):
            self.ended(job, MessageEnding.SUCCEEDED)

    def ended(self, job: UpstreamJob, ending: MessageEnding) -> None:
        """Write the line of a message."""
        stored_ms = job.subscription.stored_ms(job)
        _log.debug(
            "message_ended",
            group=self._group,
            topic=job.topic,
            qid=job.qid,
            offset=job.offset,
            outcome=ending.name.lower(),
            deliveries=job.deliveries,
            attempts=job.attempts,
            total_ms=None if stored_ms is None else self._clock.wall_ms() - stored_ms,
            reason=job.history.reason if job.history is not None else None,
        )


class GroupLines:
    """The lines of one node.

    Args:
        in_force: The node's configuration and groups.
        runtime: The node's.
    """

    def __init__(self, in_force: InForce, runtime: Runtime) -> None:
        self._in_force = in_force
        self._runtime = runtime
        self._rises = Rises(runtime.metrics, _SUMMED.values())
        self._latency: dict[Series, list[int]] = {}

    def configuring(self) -> Generator[None, None, None]:
        """Begin and end the lines per message, as the log level in force says, in steps."""
        wanted = self._in_force.config.node.log_level == "debug"
        for number, group in enumerate(self._in_force.all_groups(), start=1):
            if number % GROUPS_AT_ONCE == 0:
                yield
            group.node.endings.put(LISTENER, MessageLines(group.name, self._runtime) if wanted else None)

    def sum_up(self) -> None:
        """Write a line for each group and topic of which something happened since the last call."""
        now: dict[Series, dict[str, int]] = {}
        names = {metric: field for field, metric in _SUMMED.items()}
        for (metric, labels), more in self._rises.look().items():
            series = now.setdefault((labels[0], labels[1]), dict.fromkeys(_SUMMED, 0))
            series[names[metric]] += more
        for (group, topic), risen in sorted(now.items()):
            _log.info("group_minute", group=group, topic=topic, **risen, **self._slowest(group, topic))

    def _slowest(self, group: str, topic: str) -> dict[str, int | None]:
        """How long messages took that ended since the last call."""
        counts = self._runtime.metrics.histogram(END_TO_END_SECONDS, group, topic).counts
        before = self._latency.get((group, topic), [0] * len(counts))
        self._latency[group, topic] = list(counts)
        recent = [count - earlier for count, earlier in zip(counts, before, strict=True)]
        p50, p99 = quantile_seconds(recent, 0.5), quantile_seconds(recent, 0.99)
        return {
            "p50_ms": None if p50 is None else round(p50 * 1000),
            "p99_ms": None if p99 is None else round(p99 * 1000),
        }
