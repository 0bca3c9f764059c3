"""The committed offsets of one Kafka group, as its progress sees them: what was read when a partition was given."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from broker.runtime.file_writes import Steps


class KafkaOffsets:
    """`upstream.queues.CommittedOffsets`; what commits to Kafka is `upstream.kafka.commits.commits`."""

    def __init__(self, finish_writes: Callable[[], None]) -> None:
        self.changed_outside = False
        self.finish_writes = finish_writes
        self._values: dict[tuple[str, str, int], int] = {}

    def get(self, group: str, topic: str, queue_id: int) -> int | None:
        """Return what was set last."""
        return self._values.get((group, topic, queue_id))

    def set(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Keep it."""
        self._values[group, topic, queue_id] = offset

    def items(self) -> Iterator[tuple[str, str, int, int]]:
        """Yield all."""
        for (group, topic, queue_id), offset in self._values.items():
            yield group, topic, queue_id, offset

    def writing(self) -> Steps[bool]:
        """Nothing is written."""
        yield from ()
        return True
