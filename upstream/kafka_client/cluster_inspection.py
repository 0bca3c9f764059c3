"""A look at a cluster from outside, by Kafka's administration: nothing is made or changed. Waits for its answers."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from typing import Any

from broker.runtime.seams import SystemClock
from conf.secrets import SecretUnreadable
from conf.sections.kafka import KafkaClusterConfig
from upstream.calls.child_process import ChildProcess, own_end
from upstream.kafka.cluster_facts import ClusterFacts, MemberFacts, TopicFacts
from upstream.kafka.subscriptions import fits, is_expression
from upstream.kafka_client.package import KafkaUnusable, failure_of
from upstream.kafka_client.settings import Settings

# A look at a cluster by a process of its own, which may die (`upstream.kafka_client.all_groups_process`).

ANSWER_SECONDS = 120.0
"""Every question has bounds of its own; a process that takes longer is ended."""
MODULE = __name__
_PROCESSES_MAX = 3
_ENDED = "the process that queries the cluster ended three times without an answer; the cluster may be restarting"


def look_beside(
    cluster: str, config: KafkaClusterConfig, topics: Collection[str], groups: Collection[str]
) -> ClusterFacts:
    """Return what `look_at` does; its trouble says so where the process did not live to answer.

    Args:
        cluster: Its name, for sentences.
        config: As under `kafka`.
        topics, groups: As of `look_at`.

    Raises:
        KafkaUnusable: The package is missing, or refuses a setting.
        SecretUnreadable: A secret cannot be had.
    """
    for _ in range(_PROCESSES_MAX):
        kind, found = "", None
        try:
            with ChildProcess(MODULE) as child:
                kind, found = child.call((cluster, config, list(topics), list(groups)), ANSWER_SECONDS)
        except (EOFError, OSError):
            continue
        if kind == "facts":
            assert isinstance(found, ClusterFacts)
            return found
        if kind:
            raise (SecretUnreadable if kind == "secret" else KafkaUnusable)(found)
    return ClusterFacts(trouble=_ENDED)


def main() -> None:
    """Look once, as asked over the pipe."""
    with own_end() as pipe, suppress(EOFError, OSError):
        cluster, config, topics, groups = pipe.recv()
        answer: tuple[str, Any]
        try:
            answer = ("facts", look_at(Settings(cluster, config, SystemClock()), topics, groups))
        except SecretUnreadable as error:
            answer = ("secret", str(error))
        except KafkaUnusable as error:
            answer = ("setting", str(error))
        pipe.send(answer)


_TRIES = 4
_TRY_SECONDS = 2.0
_ANSWER_SECONDS = (1.0, 1.0, 1.0, 2.0, 4.0, 10.0)
"""Of one attempt after the other, each by new connections: of two brokers, a client asks one that hangs every other
time."""
_LATE_SECONDS = 0.5
_BROKERS_MAX = 3
_FITTING_MAX = 200
_FINAL = frozenset({"AUTHENTICATION", "SASL_AUTHENTICATION_FAILED", "SSL"})
_HIDDEN = frozenset({"TOPIC_AUTHORIZATION_FAILED", "GROUP_AUTHORIZATION_FAILED", "CLUSTER_AUTHORIZATION_FAILED"})


def look_at(settings: Settings, topics: Collection[str], groups: Collection[str]) -> ClusterFacts:
    """Return the facts about a cluster.

    Args:
        settings: How it is reached.
        topics: Names that are asked for, and expressions: the first 200 that fit are.
        groups: Names of groups.

    Raises:
        KafkaUnusable: The package is missing, or refuses a setting.
    """
    from confluent_kafka import KafkaException

    whole = settings.config.group_protocol == "consumer"
    troubles: list[str] = []
    final: list[str] = []

    def note(error: Any) -> None:
        failure = failure_of(error, settings.hide(error.str() or error.name()))
        troubles.append(str(failure))
        if failure.code in _FINAL:
            final.append(str(failure))

    questions = _Questions(lambda: settings.admin("pyddmq-check", error_cb=note))
    admin, found = questions.admin, None
    for _ in range(_TRIES):
        try:
            found = admin.list_topics(timeout=_TRY_SECONDS)
            break
        except KafkaException as error:
            admin.poll(0)
            troubles.append(str(failure_of(error)))
            if final:
                break
    if found is None:
        return ClusterFacts(trouble=final[-1] if final else troubles[0])
    hidden: dict[str, str] = {}
    plain = {name for name in topics if not is_expression(name)}
    fitting = [name for name in sorted(found.topics) if any(fits(each, name, whole=whole) for each in topics)]
    try:
        described = _topics(questions, sorted({*plain, *fitting[:_FITTING_MAX]}), hidden)
    except TimeoutError:
        return ClusterFacts(trouble="the cluster has not answered what its topics are like")
    allowed, members = _groups(questions, sorted(groups))
    return ClusterFacts(
        names=frozenset(found.topics),
        topics=described,
        hidden=hidden,
        groups=allowed,
        members=members,
        settings=_broker_settings(questions, sorted(found.brokers)),
        brokers=len(found.brokers),
        id=found.cluster_id or "",
    )


class _Questions:
    """Questions to a cluster, each asked again by another client where it is not answered.

    Attributes:
        admin: The present client.
    """

    def __init__(self, make: Callable[[], Any]) -> None:
        self._make = make
        self.admin = make()

    def ask(
        self, question: Callable[[Any, float], Mapping[Any, Any]], seconds: Sequence[float] = _ANSWER_SECONDS
    ) -> dict[Any, Any]:
        """Return what each of a question's futures has, or the exception with which it ended.

        Args:
            question: Makes the futures by a client, with the seconds after which a request fails.
            seconds: Those, of each attempt.
        """
        found: dict[Any, Any] = {}
        for limit in seconds:
            found = {key: _answer(future, limit) for key, future in question(self.admin, limit).items()}
            if not any(isinstance(each, TimeoutError) for each in found.values()):
                break
            self.admin = self._make()
        return found


def _answer(future: Any, seconds: float) -> Any:
    from confluent_kafka import KafkaException

    try:
        return future.result(seconds + _LATE_SECONDS)
    except KafkaException as error:
        return TimeoutError() if failure_of(error).code == "TIMED_OUT" else error
    except TimeoutError as error:
        return error


def _topics(questions: _Questions, names: Sequence[str], hidden: dict[str, str]) -> dict[str, TopicFacts]:
    """Return those that are there. Raises TimeoutError: the cluster does not answer."""
    if not names:
        return {}
    from confluent_kafka import TopicCollection

    # One that is not there is not made by this, which a request for its metadata would do.
    answers = questions.ask(
        lambda admin, seconds: admin.describe_topics(
            TopicCollection(list(names)), include_authorized_operations=True, request_timeout=seconds
        )
    )
    facts: dict[str, TopicFacts] = {}
    reported_of: dict[str, Any] = {}
    for name, reported in answers.items():
        if isinstance(reported, TimeoutError):
            raise reported
        if not isinstance(reported, Exception):
            reported_of[name] = reported
        elif (failure := failure_of(reported)).code in _HIDDEN:
            hidden[name] = str(failure)
    settings = _settings(questions, "topic", list(reported_of))
    for name, reported in reported_of.items():
        facts[name] = TopicFacts(
            partitions=len(reported.partitions),
            leaderless=sum(each.leader is None or each.leader.id < 0 for each in reported.partitions),
            replicas=min((len(each.replicas) for each in reported.partitions), default=0),
            in_sync=min((len(each.isr) for each in reported.partitions), default=0),
            settings=settings.get(name, {}),
            allowed=_allowed(reported),
            id=str(reported.topic_id) if getattr(reported, "topic_id", None) is not None else "",
        )
    return facts


def _allowed(reported: Any) -> frozenset[str] | None:
    operations = reported.authorized_operations
    return None if operations is None else frozenset(each.name for each in operations)


def _groups(
    questions: _Questions, names: Sequence[str]
) -> tuple[dict[str, frozenset[str] | None], dict[str, list[MemberFacts]]]:
    """Return what this user may do with groups, and their members."""
    if not names:
        return {}, {}
    answers = questions.ask(
        lambda admin, seconds: admin.describe_consumer_groups(
            list(names), include_authorized_operations=True, request_timeout=seconds
        )
    )
    found: dict[str, frozenset[str] | None] = {}
    members: dict[str, list[MemberFacts]] = {}
    for name, described in answers.items():
        if isinstance(described, Exception):
            # Of one that never was the cluster says nothing.
            is_hidden = not isinstance(described, TimeoutError) and failure_of(described).code in _HIDDEN
            found[name] = frozenset() if is_hidden else None
            continue
        found[name] = _allowed(described)
        members[name] = [_member(each) for each in described.members]
    return found, members


def _member(reported: Any) -> MemberFacts:
    partitions: dict[str, list[int]] = {}
    for each in reported.assignment.topic_partitions if reported.assignment is not None else ():
        partitions.setdefault(each.topic, []).append(each.partition)
    return MemberFacts(reported.client_id, reported.host.lstrip("/"), partitions)


def _broker_settings(questions: _Questions, ids: Sequence[int]) -> Mapping[str, str]:
    """Those of a broker that answers; {}: none does."""
    for seconds in _ANSWER_SECONDS:
        for each in ids[:_BROKERS_MAX]:
            with contextlib.suppress(TimeoutError):
                return _settings(questions, "broker", [str(each)], [seconds]).get(str(each), {})
    return {}


def _settings(
    questions: _Questions, kind: str, names: Sequence[str], seconds: Sequence[float] = _ANSWER_SECONDS
) -> dict[str, dict[str, str]]:
    """Settings by name; of what may not be seen none. Raises TimeoutError: the cluster does not answer."""
    if not names:
        return {}
    from confluent_kafka.admin import ConfigResource

    answers = questions.ask(
        lambda admin, limit: admin.describe_configs(
            [ConfigResource(kind, name) for name in names], request_timeout=limit
        ),
        seconds,
    )
    found: dict[str, dict[str, str]] = {}
    for resource, entries in answers.items():
        if isinstance(entries, TimeoutError):
            raise entries
        if not isinstance(entries, Exception):
            found[resource.name] = {key: each.value for key, each in entries.items() if each.value is not None}
    return found
