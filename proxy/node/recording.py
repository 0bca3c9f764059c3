"""What a node notes of itself: where its groups stand, what becomes of messages, and how far others may read."""

from __future__ import annotations

from collections.abc import Generator

from broker.runtime.bundle import Runtime
from broker.runtime.steps import run_now
from proxy.node.opened import Opened
from proxy.recording.ack_logs import AckLogs
from proxy.recording.in_force import InForce
from proxy.recording.message_lines import GroupLines
from proxy.recording.queue_samples import QueueSampler
from proxy.recording.recorder import Recorder
from proxy.recording.scheduled_samples import OnKafka, ScheduledSampler
from proxy.recording.visible_end import ShownEnd


class Recording:
    """Of one node.

    Attributes:
        recorder: Notes where the groups stand.
        ack_logs: Notes what becomes of single messages.
        group_lines: Writes that into the log, and sums it up once a minute.
        shown_end: Tells others up to where they may read the store.
    """

    def __init__(self, in_force: InForce, runtime: Runtime) -> None:
        self._in_force = in_force
        self._runtime = runtime
        self.recorder = Recorder(in_force, runtime)
        self.ack_logs = AckLogs(in_force, runtime)
        self.group_lines = GroupLines(in_force, runtime)
        self.shown_end = ShownEnd(runtime)

    def begin(self, opened: Opened, on_kafka: OnKafka) -> None:
        """Begin, once all is open; `on_kafka` is what waits there."""
        store, clock = opened.store, self._runtime.clock
        self.shown_end.open(store.root, store.end)
        self.recorder.start(
            store,
            QueueSampler(self._in_force, store, opened.pauses, clock),
            ScheduledSampler(opened.delays, opened.timers, opened.transactions, on_kafka, clock),
            opened.steps,
        )
        run_now(self._configuring_groups())

    def configuring(self) -> Generator[None, None, None]:
        """Bring the configuration in force to bear, after a reload, in steps."""
        self.recorder.configure()
        yield from self._configuring_groups()

    def _configuring_groups(self) -> Generator[None, None, None]:
        yield from self.ack_logs.configuring()
        yield from self.group_lines.configuring()

    def end(self) -> None:
        """Note that the node stops."""
        self.recorder.close()
        self.ack_logs.close()
        self.shown_end.close()

    def abandon(self) -> None:
        """Note nothing any more, as a kill; harmless after `end`."""
        self.recorder.stop()
        self.ack_logs.abandon()
        self.shown_end.abandon()
