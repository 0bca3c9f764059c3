"""Questions to the cluster that wait for its answers; each is asked in a thread."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from upstream.kafka.link import Assignment, KafkaFailure, KafkaPartition, LogBounds, TopicSubscription
from upstream.kafka.positions.new_partitions import NewPartitions
from upstream.kafka.subscriptions import fits, is_expression
from upstream.kafka_client.package import confluent, failure_of

ANSWER_SECONDS = 5.0
_FIRST = -2
END_MOMENT = -1
"""As moments, these ask for the first offset and the end (Kafka's ListOffsets)."""


def offsets_at(
    consumer: Any, wanted: Mapping[KafkaPartition, int], *, seconds: float = ANSWER_SECONDS
) -> dict[KafkaPartition, int]:
    """Return offsets at moments, in ms since the epoch; -1 where no record is so late.

    Raises:
        KafkaException: One is unknown.
    """
    package = confluent()
    asked = [package.TopicPartition(place.topic, place.partition, moment) for place, moment in wanted.items()]
    return _offsets(consumer.offsets_for_times(asked, timeout=seconds) if asked else ())


def ends_of(consumer: Any, places: Iterable[KafkaPartition]) -> dict[KafkaPartition, tuple[int, int]]:
    """Return first offsets and ends; with `read_committed` the end of what may be read. Raises KafkaException."""
    wanted = list(places)
    firsts = offsets_at(consumer, dict.fromkeys(wanted, _FIRST))
    ends = offsets_at(consumer, dict.fromkeys(wanted, END_MOMENT))
    return {each: (firsts[each], max(ends[each], firsts[each])) for each in wanted}


def ends_of_each(
    consumer: Any, places: Iterable[KafkaPartition]
) -> tuple[dict[KafkaPartition, tuple[int, int]], dict[KafkaPartition, KafkaFailure]]:
    """Return first offsets and ends by partition, and the failures of partitions for which the cluster returns none.

    Raises:
        KafkaException: The cluster does not answer.
    """
    wanted = list(places)
    try:
        return ends_of(consumer, wanted), {}
    except confluent().KafkaException:
        # librdkafka answers for all, or with the failure of one.
        if not (failures := _refused(consumer, wanted)):
            raise
    rest = [each for each in wanted if each not in failures]
    return ends_of(consumer, rest), failures


def bounds_of_each(
    consumer: Any, uncommitted: Any, places: Iterable[KafkaPartition]
) -> tuple[list[LogBounds], dict[KafkaPartition, KafkaFailure]]:
    """Return the bounds of logs, and the failures of partitions for which the cluster returns none.

    Args:
        consumer: Reads committed records only: it finds the end of what may be read.
        uncommitted: Reads all: it finds the high watermark.
        places: Which partitions.

    Raises:
        KafkaException: The cluster does not answer.
    """
    found, failures = ends_of_each(consumer, places)
    # Asked for afterwards: it is never below what may be read.
    highs = offsets_at(uncommitted, dict.fromkeys(found, END_MOMENT))
    return [LogBounds(each, low, max(highs[each], end), end) for each, (low, end) in found.items()], failures


def _refused(consumer: Any, places: Sequence[KafkaPartition]) -> dict[KafkaPartition, KafkaFailure]:
    """Return the partitions that are missing, denied, or without a leader. Raises KafkaException."""
    failures: dict[KafkaPartition, KafkaFailure] = {}
    for topic in dict.fromkeys(each.topic for each in places):
        found = consumer.list_topics(topic, timeout=ANSWER_SECONDS).topics.get(topic)
        for place in [each for each in places if each.topic == topic]:
            if (failure := _refusal(found, place)) is not None:
                failures[place] = failure
    return failures


def _refusal(found: Any, place: KafkaPartition) -> KafkaFailure | None:
    if found is None:
        return _missing(place.topic)
    if found.error is not None:
        return failure_of(found.error)
    partition = found.partitions.get(place.partition)
    if partition is None:
        return _missing(place.topic)
    return None if partition.leader >= 0 else _leaderless(place.topic)


def _missing(topic: str) -> KafkaFailure:
    return KafkaFailure("UNKNOWN_TOPIC_OR_PART", f"topic {topic} does not exist, or lacks partitions")


def _leaderless(topic: str) -> KafkaFailure:
    return KafkaFailure("LEADER_NOT_AVAILABLE", f"a partition of topic {topic} has no leader")


def look_before(consumer: Any, topics: Sequence[TopicSubscription], new_partitions: NewPartitions) -> None:
    """Look up what is there of topics, and committed, before they are subscribed. Raises KafkaException."""
    package = confluent()
    for name in new_partitions.missing(topics):
        one = None if is_expression(name) else name
        found = consumer.list_topics(**({} if one is None else {"topic": one}), timeout=ANSWER_SECONDS).topics
        there = [
            KafkaPartition(topic, partition)
            for topic, each in found.items()
            if fits(name, topic) and each.error is None
            for partition in each.partitions
        ]
        if not there and any(each.error is not None and not _is_unknown(each.error) for each in found.values()):
            continue  # Denied: it is not known what is there.
        asked = [package.TopicPartition(*place) for place in there]
        answers = consumer.committed(asked, timeout=ANSWER_SECONDS) if asked else ()
        stood = [
            KafkaPartition(each.topic, each.partition) for each in answers if each.error is None and each.offset >= 0
        ]
        new_partitions.looked_up(name, there, stood)


def _is_unknown(error: Any) -> bool:
    codes = confluent().KafkaError
    return error.code() in (codes.UNKNOWN_TOPIC_OR_PART, codes._UNKNOWN_TOPIC)


def assignments_of(
    consumer: Any,
    places: Sequence[KafkaPartition],
    topics: Sequence[TopicSubscription],
    *,
    new_partitions: NewPartitions,
    make_uncommitted: Callable[[], Any],
) -> tuple[list[Assignment], dict[KafkaPartition, KafkaFailure]]:
    """Return what a member must know of partitions that it was given, and why it is not known of some.

    Args:
        consumer: The member's.
        places: Which partitions.
        topics: What it reads.
        new_partitions: Knows which partitions are new.
        make_uncommitted: Makes a consumer that reads all; for commits above what may be read.

    Raises:
        KafkaException: The cluster does not answer, or refuses the group.
    """
    package = confluent()
    asked = [package.TopicPartition(place.topic, place.partition) for place in places]
    answers = consumer.committed(asked, timeout=ANSWER_SECONDS)
    failures = {
        KafkaPartition(each.topic, each.partition): failure_of(each.error) for each in answers if each.error is not None
    }
    answers = [each for each in answers if each.error is None]
    committed = _offsets(answers)
    texts = {KafkaPartition(each.topic, each.partition): each.metadata or "" for each in answers}
    epochs = {
        KafkaPartition(each.topic, each.partition): -1 if each.leader_epoch is None else each.leader_epoch
        for each in answers
    }
    # Asked for afterwards: what was committed is below the end, unless the log went back or is another one now.
    ends, refused = ends_of_each(consumer, committed)
    failures |= refused
    places = list(ends)
    highs = _highs(make_uncommitted, [place for place, (_, end) in ends.items() if committed[place] > end])
    standing = {place for place, (_, end) in ends.items() if 0 <= committed[place] <= highs.get(place, end)}
    wanted = {place: moment for place in places if (moment := _moment(place, topics)) is not None}
    at_times = offsets_at(consumer, {each: moment for each, moment in wanted.items() if each not in standing})
    assignments = [
        Assignment(
            *place,
            ends[place][0],
            highs.get(place, ends[place][1]),
            committed[place] if committed[place] >= 0 else None,
            texts[place] if committed[place] >= 0 else "",
            None if place not in at_times else at_times[place] if at_times[place] >= 0 else ends[place][1],
            ends[place][1],
            committed[place] < 0 and new_partitions.is_new(place),
            epochs[place],
        )
        for place in places
    ]
    new_partitions.committed(place for place in places if committed[place] >= 0)
    return assignments, failures


def _highs(make_uncommitted: Callable[[], Any], places: Sequence[KafkaPartition]) -> dict[KafkaPartition, int]:
    """Return high watermarks of partitions whose commit is above what may be read. Raises KafkaException."""
    if not places:
        return {}
    uncommitted = make_uncommitted()
    try:
        return offsets_at(uncommitted, dict.fromkeys(places, END_MOMENT))
    finally:
        uncommitted.close()


def partitions_of(consumer: Any, topic: str, *, led: bool = False) -> int | KafkaFailure:
    """Return how many partitions a topic has, or what the cluster says of it. Raises KafkaException.

    Args:
        consumer: It asks.
        topic: Which topic.
        led: A partition without a leader is a failure.
    """
    package = confluent()
    found = consumer.list_topics(topic, timeout=ANSWER_SECONDS).topics.get(topic)
    if found is None:
        return _missing(topic)
    if found.error is not None and found.error.code() != package.KafkaError.LEADER_NOT_AVAILABLE:
        if _is_unknown(found.error):
            return _missing(topic)
        return failure_of(found.error)
    if led and any(each.leader < 0 for each in found.partitions.values()):
        return _leaderless(topic)
    return len(found.partitions) or _missing(topic)


def topics_of(consumer: Any, names: Sequence[str], *, whole: bool) -> tuple[dict[str, int], dict[str, KafkaFailure]]:
    """Return the topics of these names and expressions that are there, with their partitions; and what is wrong.

    Raises:
        KafkaException: The cluster does not answer.
    """
    counts: dict[str, int] = {}
    failures: dict[str, KafkaFailure] = {}
    if expressions := [name for name in names if is_expression(name)]:
        for topic, found in consumer.list_topics(timeout=ANSWER_SECONDS).topics.items():
            if found.partitions and any(fits(name, topic, whole=whole) for name in expressions):
                counts[topic] = len(found.partitions)
    for name in [each for each in names if not is_expression(each)]:
        found = consumer.list_topics(name, timeout=ANSWER_SECONDS).topics.get(name)
        if found is not None and found.partitions:
            counts[name] = len(found.partitions)
        if (failure := _trouble(found, name)) is not None:
            failures[name] = failure
    return counts, failures


def _trouble(found: Any, topic: str) -> KafkaFailure | None:
    if found is None or (found.error is None and not found.partitions):
        return _missing(topic)
    if found.error is not None:
        return failure_of(found.error)
    return _leaderless(topic) if any(each.leader < 0 for each in found.partitions.values()) else None


def _offsets(answers: Iterable[Any]) -> dict[KafkaPartition, int]:
    found = {}
    for each in answers:
        if each.error is not None:
            raise confluent().KafkaException(each.error)
        found[KafkaPartition(each.topic, each.partition)] = each.offset
    return found


def subscribes(topics: Sequence[TopicSubscription], topic: str) -> bool:
    """Whether a topic is one of these, or fits an expression among them."""
    return any(fits(each.name, topic) for each in topics)


def _moment(place: KafkaPartition, topics: Sequence[TopicSubscription]) -> int | None:
    """The moment that was asked for with the topic of a partition."""
    named = [each for each in topics if each.name == place.topic]
    fitting = [each for each in topics if fits(each.name, place.topic)]
    return next((each.time_ms for each in (*named, *fitting)), None)
