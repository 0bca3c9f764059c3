"""A cluster that says what a test has set."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from upstream.kafka.all_groups import CommittedPosition, GroupNames, Surveyed
from upstream.kafka.link import KafkaFailure, KafkaPartition


class SetSurvey:
    """`upstream.kafka.all_groups.Survey`, of what stands in its attributes."""

    def __init__(self) -> None:
        self.committed: dict[str, dict[KafkaPartition, CommittedPosition]] = {}
        self.members: dict[str, dict[KafkaPartition, list[str]]] = {}
        self.bounds: dict[KafkaPartition, tuple[int, int]] = {}
        self.times: dict[tuple[KafkaPartition, int], int] = {}
        self.silent: set[str] = set()
        self.unlisted: set[str] = set()
        self.failure: KafkaFailure | None = None
        self.read: list[tuple[KafkaPartition, int]] = []

    def cluster_id(self) -> str:
        """Say one."""
        return "cluster-id"

    def group_names(self) -> GroupNames:
        """All but those that are not listed."""
        if self.failure is not None:
            raise self.failure
        failure = "broker 2 does not respond" if self.unlisted else None
        return GroupNames(sorted(self.committed.keys() - self.unlisted), failure)

    def groups(self, names: Sequence[str]) -> dict[str, Surveyed]:
        """Those that are not silent."""
        return {
            name: Surveyed(dict(self.committed[name]), dict(self.members.get(name, {})))
            for name in names
            if name not in self.silent
        }

    def ends(self, places: Sequence[KafkaPartition]) -> dict[KafkaPartition, tuple[int, int]]:
        """What is set."""
        return {each: self.bounds[each] for each in places if each in self.bounds}

    def moments(self, wanted: Mapping[KafkaPartition, int], seconds: float) -> dict[KafkaPartition, int]:
        """What is set."""
        assert seconds > 0
        self.read += wanted.items()
        return {place: self.times[place, offset] for place, offset in wanted.items() if (place, offset) in self.times}

    def close(self) -> None:
        """Nothing."""
