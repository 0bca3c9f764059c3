"""What is wrong with single topics of one group: missing, denied, without a leader, or with a log that went back.

What the cluster says of one topic says nothing of the others: their state and their lag stay known.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import NamedTuple

from broker.runtime.seams import Clock
from upstream.kafka.link import KafkaFailure, KafkaPartition, LogBounds

SHOWN_SECONDS = 3_600.0
"""How long the finding of a log that went back stays."""
OPEN_SECONDS = 10.0
"""A transaction that is open for longer is a finding."""
WHOLE = -1
"""In the place of a partition: all of the topic."""
_LEADERLESS = "LEADER_NOT_AVAILABLE"

_SENTENCES = {
    "UNKNOWN_TOPIC_OR_PART": "the cluster does not have topic {topic}; create it, or remove it from the group",
    "TOPIC_AUTHORIZATION_FAILED": "the cluster does not allow this node to read topic {topic}; grant Read and Describe",
    _LEADERLESS: "a partition of topic {topic} has no leader; look at the brokers",
}
_SAME = {
    "UNKNOWN_TOPIC": "UNKNOWN_TOPIC_OR_PART",
    "UNKNOWN_PARTITION": "UNKNOWN_TOPIC_OR_PART",
    "UNKNOWN_TOPIC_ID": "UNKNOWN_TOPIC_OR_PART",
    "NOT_LEADER_FOR_PARTITION": _LEADERLESS,
    "LEADER_UNKNOWN": _LEADERLESS,
}


def _kind(failure: KafkaFailure) -> str:
    return _SAME.get(failure.code, failure.code)


def is_missing(failure: KafkaFailure) -> bool:
    """Whether the cluster says that it does not have a topic or partition."""
    return _kind(failure) == "UNKNOWN_TOPIC_OR_PART"


class _OpenTransaction(NamedTuple):
    offset: int
    records: int
    since: float
    wall_ms: int


class TopicTroubles:
    """Those of one group."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._places: dict[KafkaPartition, KafkaFailure] = {}
        self._back: dict[str, tuple[int, float]] = {}
        """Messages lost by topic, and when."""
        self._open: dict[KafkaPartition, _OpenTransaction] = {}

    def heard(self, failures: Mapping[KafkaPartition, KafkaFailure]) -> list[KafkaFailure]:
        """Note every failure that the cluster reports of partitions; returns the new ones."""
        return self._note(
            {each: failure for each, failure in self._places.items() if each.partition == WHOLE}, failures
        )

    def heard_topics(self, failures: Mapping[str, KafkaFailure]) -> list[KafkaFailure]:
        """Note every failure that the cluster reports of whole topics; returns the new ones."""
        whole = {KafkaPartition(topic, WHOLE): failure for topic, failure in failures.items()}
        return self._note({each: failure for each, failure in self._places.items() if each.partition != WHOLE}, whole)

    def _note(
        self, kept: dict[KafkaPartition, KafkaFailure], failures: Mapping[KafkaPartition, KafkaFailure]
    ) -> list[KafkaFailure]:
        before = {(place.topic, _kind(failure)) for place, failure in self._places.items()}
        self._places = {**kept, **failures}
        new = {(place.topic, _kind(failure)): failure for place, failure in failures.items()}
        return [failure for key, failure in new.items() if key not in before]

    def went_back(self, topic: str, lost: int) -> None:
        """Note that a log of a topic is shorter than where the group stood."""
        earlier, _ = self._back.get(topic, (0, 0.0))
        self._back[topic] = (earlier + lost, self._clock.monotonic())

    def open_transactions(self, ends: Iterable[LogBounds]) -> None:
        """Note in which partitions a transaction is open: nothing at or above its first record can be read."""
        for place, _, high, stable in ends:
            before = self._open.pop(place, None)
            if stable < high:
                known = before is not None and before.offset == stable
                since = before.since if before is not None and known else self._clock.monotonic()
                wall_ms = before.wall_ms if before is not None and known else self._clock.wall_ms()
                self._open[place] = _OpenTransaction(stable, high - stable, since, wall_ms)

    def given_up(self, places: Iterable[KafkaPartition]) -> None:
        """Forget partitions that this member does not have any more."""
        for place in places:
            self._open.pop(place, None)

    def forget(self) -> None:
        """The member has left: what the cluster said of topics is unknown."""
        self._places.clear()
        self._open.clear()

    def of(self, topic: str) -> str | None:
        """Return what keeps all of a topic from being read; None: nothing."""
        for place, failure in self._places.items():
            if place.topic == topic and _kind(failure) != _LEADERLESS:
                return _sentence(topic, failure)
        return None

    def texts(self) -> dict[str, str]:
        """Return the topics with a trouble, each with a sentence."""
        since = self._clock.monotonic() - SHOWN_SECONDS
        found = {
            topic: f"a log of topic {topic} was truncated, or the topic was created again; {lost} messages were lost"
            for topic, (lost, at) in self._back.items()
            if at >= since
        }
        long = self._clock.monotonic() - OPEN_SECONDS
        found |= {place.topic: _waits(place, each) for place, each in self._open.items() if each.since <= long}
        return found | {place.topic: _sentence(place.topic, failure) for place, failure in self._places.items()}


def _waits(place: KafkaPartition, found: _OpenTransaction) -> str:
    since = datetime.fromtimestamp(found.wall_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    return (
        f"topic {place.topic}: open transaction since {since}; the {found.records} offsets of partition "
        f"{place.partition} from {found.offset} cannot be read before it ends"
    )


def _sentence(topic: str, failure: KafkaFailure) -> str:
    known = _SENTENCES.get(_kind(failure))
    return f"topic {topic}: {failure}" if known is None else f"{known.format(topic=topic)} ({failure.code})"
