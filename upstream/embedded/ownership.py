"""Queue locks of a group: the proxy consumes a topic's queues only while it holds their locks (D36).

The locks are those of consumers inside the program (`broker.consumer`), so that a group belongs to the proxy or to
them. All queues of a topic are taken, or none. What is committed is handed over through `consumerOffset.json`: it is
brought up to date when a topic or group is released, and read again after locks are taken.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator
from typing import TYPE_CHECKING

from broker.queues.queue_locks import RENEWAL_SECONDS, Place
from broker.runtime.bundle import Runtime
from broker.runtime.later import Repeated
from broker.runtime.metrics import declare
from broker.runtime.steps import StepRunner
from upstream.progress.progress import Progress, ProgressFailed

if TYPE_CHECKING:
    from broker.store import Store
    from upstream.queues import NodeTopic

QUEUES_REFUSED = declare(
    "pyddmq_queues_owned_total",
    "Attempts to start a subscription while its queues are consumed inside the program.",
    ("group", "topic"),
)
QUEUES_LOST = declare(
    "pyddmq_queues_lost_total",
    "Subscriptions stopped because the node did not renew their queue locks in time.",
    ("group", "topic"),
)


_TOPICS_AT_ONCE = 512
"""Topics whose locks are renewed in one step."""


class QueueOwnership:
    """The locks that the proxy holds for one group: its `upstream.source.Claims`."""

    def __init__(
        self,
        group: str,
        client_id: str,
        *,
        store: Store,
        progress: Progress,
        runtime: Runtime,
        lost: Callable[[str], None],
    ) -> None:
        """Hold nothing yet.

        Args:
            group: Name of the group.
            client_id: Who the proxy is in the table of locks.
            store: Has the locks.
            progress: Committed before locks are released.
            runtime: Its scheduler runs the renewal every 20 s; counts refusals and losses, and says what was lost.
            lost: Called with the topic whose locks another consumer got meanwhile.
        """
        self._group = group
        self._client_id = client_id
        self._locks = store.queue_locks
        self._progress = progress
        self._metrics = runtime.metrics
        self._limited_log = runtime.limited_log
        self._lost = lost
        self._held: dict[str, set[Place]] = {}
        runner = StepRunner(runtime.scheduler.call_soon)
        self._renewals = Repeated(runtime.scheduler, RENEWAL_SECONDS, lambda: runner.run(self._renewing()))

    def take(self, topic: NodeTopic) -> None:
        """Take the locks of all queues of a topic, or keep those held.

        Raises:
            QueuesOwned: Somebody else consumes one of them; nothing was taken.
        """
        places = {(topic.name, queue.queue_id) for queue in topic.queues}
        held = self._held.get(topic.name, set())
        granted = self._locks.lock_batch(self._group, self._client_id, sorted(places))
        if granted != places:
            refusal = self._locks.refusal(self._group, self._client_id, sorted(places - granted))
            self._locks.unlock_batch(self._group, self._client_id, granted - held)
            self._metrics.counter(QUEUES_REFUSED, self._group, topic.name).add()
            assert refusal is not None, "a lock that is refused has an owner"
            if not held:
                self._progress.let_go(self._group, topic.name)
            raise refusal
        self._held[topic.name] = places
        self._renewals.begin()

    def release(self, topic: str | None = None) -> None:
        """Give up the locks of one topic, with the committed offsets written down before, or of all without that."""
        if topic is not None and topic in self._held:
            with contextlib.suppress(ProgressFailed):
                self._progress.commit()
            self._progress.let_go(self._group, topic)
        for each in [topic] if topic is not None else list(self._held):
            self._locks.unlock_batch(self._group, self._client_id, self._held.pop(each, set()))
        if not self._held:
            self._renewals.end()

    def _renewing(self) -> Generator[None, None, None]:
        for number, topic in enumerate(list(self._held), start=1):
            if number % _TOPICS_AT_ONCE == 0:
                yield
            places = self._held.get(topic, set())
            missing = places - self._locks.lock_batch(self._group, self._client_id, sorted(places))
            if missing:
                # The loop stood still for more than a minute.
                refusal = self._locks.refusal(self._group, self._client_id, sorted(missing))
                owner = refusal.owner if refusal is not None else None
                self._metrics.counter(QUEUES_LOST, self._group, topic).add()
                self._limited_log.note("queue_locks_lost", self._group, topic=topic, owner=owner)
                self._locks.unlock_batch(self._group, self._client_id, self._held.pop(topic) - missing)
                self._progress.let_go(self._group, topic)
                self._lost(topic)
