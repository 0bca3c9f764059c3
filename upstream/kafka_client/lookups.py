"""Questions to the cluster that wait for its answers; each is asked in a thread."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from upstream.kafka.link import Assignment, Place, Subscribed
from upstream.kafka.subscriptions import fits, is_expression
from upstream.kafka_client.package import confluent

ANSWER_SECONDS = 5.0
_FIRST = -2
_END = -1
"""As moments, these ask for the first offset and the end (Kafka's ListOffsets)."""


def offsets_at(consumer: Any, wanted: Mapping[Place, int]) -> dict[Place, int]:
    """Return offsets at moments, in ms since the epoch; -1 where no record is so late.

    Raises:
        KafkaException: One cannot be told.
    """
    package = confluent()
    asked = [package.TopicPartition(place.topic, place.partition, moment) for place, moment in wanted.items()]
    return _offsets(consumer.offsets_for_times(asked, timeout=ANSWER_SECONDS) if asked else ())


def ends_of(consumer: Any, places: Iterable[Place]) -> dict[Place, tuple[int, int]]:
    """Return first offsets and ends; the end is that of what may be read (read_committed). Raises KafkaException."""
    wanted = list(places)
    firsts = offsets_at(consumer, dict.fromkeys(wanted, _FIRST))
    ends = offsets_at(consumer, dict.fromkeys(wanted, _END))
    return {each: (firsts[each], max(ends[each], firsts[each])) for each in wanted}


def assignments_of(consumer: Any, places: Sequence[Place], topics: Sequence[Subscribed]) -> list[Assignment]:
    """Return what a member must know of partitions that it was given. Raises KafkaException."""
    package = confluent()
    asked = [package.TopicPartition(place.topic, place.partition) for place in places]
    answers = consumer.committed(asked, timeout=ANSWER_SECONDS)
    committed = _offsets(answers)
    texts = {Place(each.topic, each.partition): each.metadata or "" for each in answers}
    # Asked for afterwards: what was committed lies below the end, unless the topic is another one now.
    ends = ends_of(consumer, places)
    for place, (_, end) in ends.items():
        if not 0 <= committed[place] <= end:
            del committed[place]
    wanted = {place: moment for place in places if (moment := _moment(place, topics)) is not None}
    at_times = offsets_at(consumer, {each: moment for each, moment in wanted.items() if each not in committed})
    return [
        Assignment(
            *place,
            *ends[place],
            committed.get(place),
            texts[place] if place in committed else "",
            None if place not in at_times else at_times[place] if at_times[place] >= 0 else ends[place][1],
        )
        for place in places
    ]


def partitions_of(consumer: Any, topic: str) -> int | None:
    """Return how many partitions a topic has; None: there is none. Raises KafkaException."""
    package = confluent()
    found = consumer.list_topics(topic, timeout=ANSWER_SECONDS).topics.get(topic)
    if found is None:
        return None
    if found.error is not None and found.error.code() != package.KafkaError.LEADER_NOT_AVAILABLE:
        if found.error.code() in (package.KafkaError.UNKNOWN_TOPIC_OR_PART, package.KafkaError._UNKNOWN_TOPIC):
            return None
        raise package.KafkaException(found.error)
    return len(found.partitions) or None


def topics_of(consumer: Any, names: Sequence[str], *, whole: bool) -> dict[str, int]:
    """Return the topics of these names and expressions that are there, with their partitions. Raises KafkaException."""
    if not any(is_expression(name) for name in names):
        counts = {name: partitions_of(consumer, name) for name in names}
        return {name: count for name, count in counts.items() if count}
    listed = consumer.list_topics(timeout=ANSWER_SECONDS).topics
    return {
        topic: len(found.partitions)
        for topic, found in listed.items()
        if found.partitions and any(fits(name, topic, whole=whole) for name in names)
    }


def _offsets(answers: Iterable[Any]) -> dict[Place, int]:
    found = {}
    for each in answers:
        if each.error is not None:
            raise confluent().KafkaException(each.error)
        found[Place(each.topic, each.partition)] = each.offset
    return found


def subscribes(topics: Sequence[Subscribed], topic: str) -> bool:
    """Whether a topic is one of these, or fits an expression among them."""
    return any(fits(each.name, topic) for each in topics)


def _moment(place: Place, topics: Sequence[Subscribed]) -> int | None:
    """The moment that was asked for with the topic of a partition."""
    named = [each for each in topics if each.name == place.topic]
    fitting = [each for each in topics if fits(each.name, place.topic)]
    return next((each.time_ms for each in (*named, *fitting)), None)
