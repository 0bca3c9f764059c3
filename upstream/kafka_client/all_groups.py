"""Looks at a whole cluster by librdkafka's AdminClient, and at single records by a consumer that joins nothing."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from broker.runtime.seams import Clock
from conf.sections.kafka import KafkaClusterConfig
from upstream.kafka.all_groups import CommittedPosition, GroupNames, Surveyed
from upstream.kafka.link import KafkaPartition
from upstream.kafka_client.lookups import ANSWER_SECONDS
from upstream.kafka_client.package import confluent, failure_of
from upstream.kafka_client.settings import Settings
from upstream.kafka_client.troubles import sentence_of

_GROUPS_AT_ONCE = 100
"""A question for each group's offsets: so many are on their way together."""
_POLL_SECONDS = 0.05
_SHARED_OUT = frozenset({"PREPARING_REBALANCING", "COMPLETING_REBALANCING"})


class LibrdkafkaSurvey:
    """`upstream.kafka.all_groups.Survey`. Called in one thread, which waits."""

    def __init__(self, cluster: str, config: KafkaClusterConfig, *, client_id: str, clock: Clock) -> None:
        """Read the secrets, and connect in the background.

        Args:
            cluster: Its name, for log lines.
            config: As under `kafka`.
            client_id: How brokers name it in their logs.
            clock: Bounds what is waited for.

        Raises:
            KafkaUnusable: The package is missing, or refuses a setting.
            SecretUnreadable: A secret cannot be had.
        """
        self._package = confluent()
        self._settings = Settings(cluster, config, clock)
        self._client_id = client_id
        self._clock = clock
        self._said = ""
        self._admin = self._settings.admin(client_id, error_cb=self._note)
        self._stuck = False
        """Whether a question was not answered: with 2.16 a client whose group coordinator went gets no answer from
        then on, also once it is back, so the next round has another client."""
        self._reader: Any = None

    def cluster_id(self) -> str:
        """Return the name that the cluster has given itself."""
        with self._reported():
            return str(self._admin.describe_cluster(request_timeout=ANSWER_SECONDS).result().cluster_id)

    def group_names(self) -> GroupNames:
        """Return the groups of consumers; a broker that does not answer leaves out those that it coordinates."""
        if self._stuck:
            self._admin = self._settings.admin(self._client_id, error_cb=self._note)
            self._stuck = False
        with self._reported():
            found = self._admin.list_consumer_groups(request_timeout=ANSWER_SECONDS).result()
            if not found.valid and found.errors:
                raise self._package.KafkaException(found.errors[0])
            failure = None
            if found.errors:
                failed = failure_of(found.errors[0])
                self._stuck |= failed.unknown
                failure = self._settings.hide(str(failed))
            return GroupNames(sorted(each.group_id for each in found.valid), failure)

    def groups(self, names: Sequence[str]) -> dict[str, Surveyed]:
        """Return groups by name."""
        found: dict[str, Surveyed] = {}
        with self._reported():
            for at in range(0, len(names), _GROUPS_AT_ONCE):
                found |= self._groups(names[at : at + _GROUPS_AT_ONCE])
        return found

    def _groups(self, names: Sequence[str]) -> dict[str, Surveyed]:
        """Query each group on its own; librdkafka refuses the empty name, which Kafka allows."""
        names = [name for name in names if name]
        if not names:
            return {}
        wanted = self._package.ConsumerGroupTopicPartitions
        ask = self._admin.list_consumer_group_offsets
        offsets = {name: ask([wanted(name)], request_timeout=ANSWER_SECONDS)[name] for name in names}
        described = self._admin.describe_consumer_groups(names, request_timeout=ANSWER_SECONDS)
        found = {}
        for name in names:
            try:
                group = described[name].result()
                stable = group.state.name not in _SHARED_OUT
                found[name] = Surveyed(_committed(offsets[name].result()), _members(group), stable)
            except self._package.KafkaException as error:
                self._stuck |= failure_of(error).unknown
        return found

    def ends(self, places: Sequence[KafkaPartition]) -> dict[KafkaPartition, tuple[int, int]]:
        """Return first offsets and ends."""
        from confluent_kafka.admin import OffsetSpec

        spec: Any = OffsetSpec
        make = self._package.TopicPartition
        asked = []
        # First offsets before ends: what is between them is never less than it was.
        for what in (spec.earliest(), spec.latest()):
            wanted = {make(*place): what for place in places}
            asked.append(self._admin.list_offsets(wanted, request_timeout=ANSWER_SECONDS) if wanted else {})
        firsts, ends = (
            {KafkaPartition(each.topic, each.partition): reported for each, reported in one.items()} for one in asked
        )
        found = {}
        for place in places:
            with contextlib.suppress(self._package.KafkaException):
                first, end = firsts[place].result().offset, ends[place].result().offset
                if first >= 0:
                    found[place] = (first, max(first, end))
        return found

    def moments(self, wanted: Mapping[KafkaPartition, int], seconds: float) -> dict[KafkaPartition, int]:
        """Return timestamps of records."""
        if not wanted:
            return {}
        if self._reader is None:
            self._reader = self._settings.looker(self._client_id)
        make = self._package.TopicPartition
        reader, left, found = self._reader, set(wanted), {}
        until = self._clock.monotonic() + seconds
        reader.assign([make(*place, offset) for place, offset in wanted.items()])
        try:
            while left and self._clock.monotonic() < until:
                message = reader.poll(_POLL_SECONDS)
                if message is None or message.topic() is None:
                    continue
                place = KafkaPartition(message.topic(), message.partition())
                if place not in left:
                    continue
                left.discard(place)
                reader.incremental_unassign([make(*place)])
                kind, moment = (0, 0) if message.error() is not None else message.timestamp()
                if kind:
                    found[place] = moment
        except self._package.KafkaException:
            return found  # What did not come is not known.
        finally:
            reader.unassign()
        return found

    def close(self) -> None:
        """Ask nothing more."""
        if self._reader is not None:
            self._reader.close()

    @contextlib.contextmanager
    def _reported(self) -> Iterator[None]:
        try:
            yield
        except self._package.KafkaException as error:
            failure = failure_of(error)
            text = self._settings.hide(str(error.args[0].str() if error.args else error))
            self._admin.poll(0)
            self._stuck |= failure.unknown
            if failure.unknown and self._said:
                # A question that was not answered says less than the connection that was not made.
                text, self._said = self._said, ""
            raise failure_of(error, text or failure.code) from None

    def _note(self, error: Any) -> None:
        """Keep what is wrong with the connection (librdkafka's `error_cb`)."""
        code = failure_of(error).code
        if code != "ALL_BROKERS_DOWN":
            self._said = sentence_of(code, self._settings.hide(error.str()))


def _committed(answer: Any) -> dict[KafkaPartition, CommittedPosition]:
    """Return what a group has committed; raises what one partition's error says: half an answer is none."""
    found = {}
    for each in answer.topic_partitions:
        if each.error is not None:
            raise confluent().KafkaException(each.error)
        if each.offset >= 0:
            found[KafkaPartition(each.topic, each.partition)] = CommittedPosition(each.offset, each.metadata or "")
    return found


def _members(description: Any) -> dict[KafkaPartition, list[str]]:
    found: dict[KafkaPartition, list[str]] = {}
    for member in description.members:
        for each in member.assignment.topic_partitions:
            found.setdefault(KafkaPartition(each.topic, each.partition), []).append(member.client_id)
    return found
