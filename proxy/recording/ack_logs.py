"""Ack logs of a node: what became of single messages, for the groups whose configuration asks for it.

What ends is kept in memory for a second or 4,096 messages, whatever comes first, and is written by a step of its own,
a queue at a time, beside what the loop does for clients. What a kill takes is that second; nothing else depends on it.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence

from broker.runtime.bundle import Runtime
from broker.runtime.later import Later
from broker.runtime.metrics import declare
from lag.acks.acks import AckBatch, Outcome, is_sampled
from lag.acks.log import FOLDER, AckLog, AckLogLimits
from lag.blocks import FileHead, FileKind
from proxy.recording.in_force import GROUPS_AT_ONCE, InForce
from upstream.figures.endings import MessageEnding, ended_jobs
from upstream.job import DeliveredBatch, UpstreamJob

WRITTEN = declare("pyddmq_ack_log_messages_total", "Messages in the ack log of a group", ("group",))
DROPPED = declare("pyddmq_ack_log_dropped_total", "Messages missing in the ack log of a group", ("group",))

SECONDS = 1.0
"""How long an ending waits to be written."""
ROWS = 4_096
"""Endings that are written at once, whatever the time."""
ROWS_MAX = 16 * ROWS
"""Endings that wait at most: a few megabytes. More are dropped, and counted."""
OPEN_MAX = 100_000
"""Messages whose hand-out is remembered until they end; the oldest is forgotten first."""

_Row = tuple[int, int, int | None, int, int, int]
_Place = tuple[str, int, int]


class GroupAckLog:
    """Records one group: an `EndingListener`.

    Args:
        group: Its name.
        log: Its files.
        one_in: One of so many messages is recorded; 1: all.
        runtime: The node's.
    """

    def __init__(self, group: str, log: AckLog, one_in: int, runtime: Runtime) -> None:
        self.one_in = one_in
        self._group = group
        self._log = log
        self._clock = runtime.clock
        self._limited_log = runtime.limited_log
        self._later = Later(runtime.scheduler, self._step)
        self._waiting: dict[tuple[str, int], list[_Row]] = {}
        self._rows = 0
        self._is_over = False
        self._open: dict[_Place, tuple[int, int]] = {}
        self._written = runtime.metrics.counter(WRITTEN, group)
        self._dropped = runtime.metrics.counter(DROPPED, group)

    # What the group reports

    def handed_out(self, delivery: DeliveredBatch) -> None:
        """Remember when a batch went out, of those messages that are out for the first time."""
        now_ms, opened = self._clock.wall_ms(), self._open
        for job in delivery.jobs or ():
            if job.deliveries != 1 or not is_sampled(job.offset, self.one_in):
                continue
            stored_ms = job.subscription.stored_ms(job)
            if stored_ms is not None:
                opened[job.topic, job.queue_id, job.offset] = stored_ms, now_ms
        while len(opened) > OPEN_MAX:
            del opened[next(iter(opened))]

    def finished(self, delivery: DeliveredBatch, offsets: Sequence[int]) -> None:
        """Record messages of one delivery that its client finished."""
        for job in ended_jobs(delivery, offsets):
            self.ended(job, MessageEnding.SUCCEEDED)

    def ended(self, job: UpstreamJob, ending: MessageEnding) -> None:
        """Record a message."""
        offset = job.offset
        if self._is_over or not is_sampled(offset, self.one_in):
            return
        topic, queue = job.topic, job.queue_id
        opened = self._open.pop((topic, queue, offset), None)
        stored_ms, handed_ms = opened or (job.subscription.stored_ms(job), None)
        if stored_ms is None or self._rows >= ROWS_MAX:
            self._dropped.value += 1
            return
        row = offset, stored_ms, handed_ms, self._clock.wall_ms(), job.deliveries, Outcome(ending)
        self._waiting.setdefault((topic, queue), []).append(row)
        self._rows += 1
        if self._rows == ROWS:
            self._later.after(0)
        else:
            self._later.unless_due(SECONDS)

    # What is written

    def _step(self) -> None:
        """Write what waits of one queue; the others come with the next turns."""
        if self._waiting:
            self._write_one()
        if self._waiting:
            self._later.unless_due(0)

    def _write_one(self) -> None:
        (topic, queue), rows = next(iter(self._waiting.items()))
        part, rest = rows[:ROWS], rows[ROWS:]
        if rest:
            self._waiting[topic, queue] = rest
        else:
            del self._waiting[topic, queue]
        self._rows -= len(part)
        written, dropped = self._log.written, self._log.dropped
        columns = zip(*part, strict=True)
        self._log.add(AckBatch(topic, queue, *columns))
        self._written.value += self._log.written - written
        self._dropped.value += self._log.dropped - dropped
        if self._log.trouble is not None:
            self._limited_log.note("ack_log_not_written", self._group, fault=self._log.trouble)

    def close(self) -> None:
        """Write what waits, and end the file; nothing more is recorded."""
        self._is_over = True
        self._later.cancel()
        while self._waiting:
            self._write_one()
        try:
            self._log.close()
        except OSError as error:
            self._limited_log.note("ack_log_not_written", self._group, fault=str(error))

    def abandon(self) -> None:
        """Write nothing any more, as a kill."""
        self._is_over = True
        self._later.cancel()
        self._waiting.clear()


class AckLogs:
    """The ack logs of one node.

    Args:
        in_force: The node's configuration and groups.
        runtime: The node's.
    """

    def __init__(self, in_force: InForce, runtime: Runtime) -> None:
        self._in_force = in_force
        self._runtime = runtime
        self._logs: dict[str, GroupAckLog] = {}
        self._epoch = 0

    def configuring(self) -> Generator[None, None, None]:
        """Begin, continue with, and end logs as the configuration in force says, in steps.

        A group that drains keeps its own.
        """
        self._epoch = self._epoch or self._runtime.clock.wall_us()
        config = self._in_force.config
        groups = {group.name: group for group in self._in_force.all_groups()}
        for name in [*self._logs]:
            if name not in groups:
                self._logs.pop(name).close()
        for number, (name, group) in enumerate(groups.items(), start=1):
            if number % GROUPS_AT_ONCE == 0:
                yield
            log = self._logs.get(name)
            wanted = config.groups[name].ack_log_one_in if name in config.groups else 0 if log is None else log.one_in
            if log is not None and log.one_in != wanted:
                self._logs.pop(name).close()
                log = None
            if wanted and log is None:
                log = self._logs[name] = self._begin(name, wanted)
            group.node.endings.put("ack_log", log)

    def _begin(self, group: str, one_in: int) -> GroupAckLog:
        node, runtime = self._in_force.config.node, self._runtime
        head = FileHead(
            kind=FileKind.ACKS,
            cluster=node.broker_cluster,
            node=node.broker_name,
            epoch=self._epoch,
            sequence=0,
            first_ms=0,
            last_ms=0,
            group=group,
        )
        # Rows are chosen before they are kept: the log takes all that it is given.
        log = AckLog(runtime.disk, f"{node.data}/{FOLDER}/{group}", head, AckLogLimits(), syncs=runtime.syncs)
        return GroupAckLog(group, log, one_in, runtime)

    def close(self) -> None:
        """Write what waits, and end the files."""
        for log in self._logs.values():
            log.close()

    def abandon(self) -> None:
        """Write nothing any more, as a kill; harmless after `close`."""
        for log in self._logs.values():
            log.abandon()
