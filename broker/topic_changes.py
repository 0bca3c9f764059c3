"""Changes to the topics of an open store; each is durable before it shows (D6)."""

from __future__ import annotations

from collections.abc import Callable

from broker.errors import NO_SPACE, DiskFull, StoreError
from broker.metrics import Metrics
from broker.store_metrics import REFUSED
from broker.topics import Topic, Topics, check_wanted

_FILE_BYTES = 4096


class TopicChanges:
    """Makes and widens topics of one store."""

    def __init__(
        self, root: str, *, topics: Topics, metrics: Metrics, fail: Callable[[str, OSError], StoreError]
    ) -> None:
        """Set up.

        Args:
            root: The store.
            topics: Its topics, loaded before the first change.
            metrics: Counts refusals.
            fail: Stops the store's write side for good and returns the error that says so.
        """
        self._root = root
        self._topics = topics
        self._metrics = metrics
        self._fail = fail

    def create(self, name: str, queues: int, *, system: bool) -> Topic:
        """Return the topic, made or grown so that it has at least `queues` queues: `Store.create_topic`."""
        check_wanted(name, queues)
        known = self._topics.by_name.get(name)
        if known is None or len(known.queues) < queues:
            # Memory grows only once the file says so.
            self._save(grown=(name, queues))
        topic = self._topics.grow(name, queues)
        topic.system = topic.system or system
        return topic

    def _save(self, grown: tuple[str, int]) -> None:
        try:
            self._topics.save(grown)
        except OSError as error:
            if error.errno in NO_SPACE:
                self._metrics.counter(REFUSED, "disk_full").add()
                raise DiskFull(self._root, _FILE_BYTES) from error
            raise self._fail("writing the topic file", error) from error
