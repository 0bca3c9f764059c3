"""The broker in the process, as groups see it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from broker.errors import DamagedRecord, RecordGone, StoreError
from broker.log.put import Put
from broker.queues.consume_queue import ConsumeQueue
from broker.queues.topics import Topic, dead_letter_topic, retry_topic
from broker.retry.dead_letter import dead_letter, is_dead_letter_topic
from broker.retry.puts import FailureCounts, send_back_for
from broker.runtime.bundle import Runtime
from broker.store import Store
from pyddmq.actions import MessageUnreadable
from upstream.embedded.ownership import QueueOwnership
from upstream.embedded.queues import EmbeddedQueues, own
from upstream.embedded.retries import origins, read_origin, read_replaced, retry_queues, why_unreadable
from upstream.embedded.source import EmbeddedSource
from upstream.embedded.stretch import StretchReader
from upstream.history import history_of
from upstream.job import Generation, GroupQueue, UpstreamJob
from upstream.progress.progress import DeadLetterOrigin, Progress
from upstream.queues import QueueView
from upstream.source import Appended, MessageFilter, SourceCounts, Stretch


class EmbeddedBroker(EmbeddedQueues):
    """`upstream.source.Broker` over one store."""

    def __init__(self, store: Store, runtime: Runtime) -> None:
        """Set up.

        Args:
            store: The broker.
            runtime: Its clock dates failures, its scheduler renews claims; counts and log lines.
        """
        super().__init__(store)
        self._stretches = StretchReader(store)
        self._runtime = runtime

    # Topics

    def topic(self, name: str) -> Topic | None:
        """Return a topic of the store."""
        return self.store.topics.get(name)

    def make_topic(self, name: str) -> Topic:
        """Return a topic of a group's own. Raises StoreError."""
        return self.store.create_topic(name, 1, system=True)

    def dead_letter_topic(self, group: str) -> str:
        """Return `%DLQ%` and the group."""
        return dead_letter_topic(group)

    def retry_topic(self, group: str) -> str:
        """Return `%RETRY%` and the group."""
        return retry_topic(group)

    def is_dead_letter_topic(self, topic: str) -> bool:
        """Whether a topic holds dead letters."""
        return is_dead_letter_topic(topic)

    def unknown(self, topic: str) -> str | None:
        """Queues are there from the first moment on."""
        return None

    # Reading

    def claims(self, group: str, client_id: str, *, progress: Progress, lost: Callable[[str], None]) -> QueueOwnership:
        """Claim queues by the locks that consumers inside the program use, too (D36)."""
        return QueueOwnership(
            group,
            client_id,
            store=self.store,
            progress=progress,
            runtime=self._runtime,
            lost=lost,
        )

    def open(
        self,
        subscription: Generation,
        group_queues: Sequence[GroupQueue],
        *,
        counters: SourceCounts,
        keeps_bodies: bool,
    ) -> EmbeddedSource:
        """Open the source of one generation."""
        return EmbeddedSource(
            subscription,
            group_queues,
            store=self.store,
            runtime=self._runtime,
            counters=counters,
            keeps_bodies=keeps_bodies,
        )

    def read_stretch(
        self, queue: QueueView, start: int, count_max: int, bytes_max: int, wanted: MessageFilter, *, times: bool
    ) -> Stretch:
        """Read it from the log."""
        return self._stretches.read(own(queue), start, count_max, bytes_max, wanted, times=times)

    # Appending

    def is_dead_letter_refused(self, job: UpstreamJob) -> bool:
        """What is taken is not refused later."""
        return False

    def withdraw_dead_letter(self, job: UpstreamJob) -> bool:
        """Likewise."""
        return False

    def append_dead_letter(self, group: str, job: UpstreamJob, reason: str, done: Appended) -> None:
        """Append a record that replaces the job's; see `Broker.append_dead_letter`."""
        action = job.failed_action
        self._append(lambda: dead_letter(self.store, group, job, reason, self._record(job), action=action), done)

    def append_retry(self, group: str, job: UpstreamJob, wait_ms: int, done: Appended) -> None:
        """Append a record that waits in a timer and replaces the job's; see `Broker.append_retry`."""
        history = history_of(job)
        counts = FailureCounts(history.fails, history.errors, history.timeouts)
        self._append(lambda: send_back_for(self.store, group, self._record(job), counts=counts, wait_ms=wait_ms), done)

    def _record(self, job: UpstreamJob) -> memoryview:
        return self.store.read(job.physical, job.size)

    def _append(self, make: Callable[[], tuple[Put, int, bytes]], done: Appended) -> None:
        try:
            put, born_ms, host = make()
        except (DamagedRecord, RecordGone) as error:
            raise MessageUnreadable(why_unreadable(error)) from error
        # The position is known when `append` returns, which is before `told` runs.
        position: list[int] = []

        def reported(error: StoreError | None) -> None:
            done(error, put.topic.name, put.queue_id, position[0])

        position.append(self.store.append([put], born_ms=born_ms, born_host=host, done=reported)[0].offset)

    # After a start

    def retry_queues(self, group: str) -> list[ConsumeQueue]:
        """Return the timers' queues, shared by all groups, and those of the group's retry topic."""
        return retry_queues(self.store, group)

    def replaced_by_dead_letters(self, queue: QueueView, start: int) -> Iterator[DeadLetterOrigin]:
        """Read the dead letters of a queue."""
        return origins(self.store, own(queue), start, read_origin)

    def replaced_by_retries(self, queue: QueueView, start: int) -> Iterator[DeadLetterOrigin]:
        """Read the retry records of a queue."""
        return origins(self.store, own(queue), start, read_replaced)
