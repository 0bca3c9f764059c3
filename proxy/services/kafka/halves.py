"""Halves of Kafka's topics: stored in the waiting topic, decided by the owner of their partition, checked by it.

A handle names cluster and identity, so any node takes a decision. Each node hands out the checks of the partitions
that it owns (D66). See `upstream.kafka.waiting`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from broker.format.numbers import whole_number
from broker.format.properties import find_property
from broker.log.put import Put
from broker.runtime.seams import Clock
from broker.scheduled.release import without
from broker.transaction.half import IMMUNITY_SECONDS_MAX, PRIVATE
from broker.transaction.names import IMMUNITY, State
from proxy.services.kafka.ports import KafkaPort, Until
from proxy.wire.transactions import CheckRow
from upstream.kafka.headers import decode
from upstream.kafka.link import KafkaRecord
from upstream.kafka.waiting.cluster import KafkaCheck, KafkaWaiting
from upstream.kafka.waiting.records import (
    HalfDecision,
    Identity,
    WaitingHalf,
    half_handle,
    parse_half_handle,
)

_ANSWER_SECONDS = 4.0
"""How long a decision waits for its owner's answer: below the timeout of a producer, 5 s."""
_WORDS = {State.UNKNOWN: "unknown", State.COMMIT: "commit", State.ROLLBACK: "rollback"}


class NamedHalf(NamedTuple):
    """A half by the cluster where it waits and its identity."""

    waiting: KafkaWaiting
    identity: Identity


class DueCheck(NamedTuple):
    """A check for its producer.

    Attributes:
        row: As its producer gets it.
        check: As its owner knows it.
        give_back: Takes `check` back, if it reached no client.
        size: Its bytes.
    """

    row: CheckRow
    check: Any
    give_back: Callable[[Any], None]
    size: int


class KafkaHalves:
    """The halves of a node's Kafka clusters.

    Args:
        waiting: By cluster; read at each call.
        clock: Its wall clock counts ages.
    """

    def __init__(self, waiting: Mapping[str, KafkaWaiting], clock: Clock) -> None:
        self._waiting = waiting
        self._clock = clock
        self._fetches = 0
        """Another cluster is the first each time."""

    def half(self, put: Put, port: KafkaPort, half: WaitingHalf, owner: str | None) -> tuple[Put, KafkaPort]:
        """Return what `KafkaSends.append` stores as a half.

        Raises:
            Refusal: Nothing waits on that cluster, or no more may.
        """
        asked = find_property(put.properties, IMMUNITY)
        seconds = whole_number(asked, 11) if asked else None
        if seconds is not None:
            half = half._replace(immunity_ms=min(seconds, IMMUNITY_SECONDS_MAX) * 1000)
        now_ms = self._clock.wall_ms()
        age_ms = port.waiting.checks.timeout_ms if half.immunity_ms < 0 else half.immunity_ms
        until = Until(now_ms + age_ms, "half", owner or "", half=half)
        return put._replace(properties=without(put.properties, PRIVATE)), port.until(until, now_ms)

    def undecided_of(self, principal: str) -> int:
        """Return how many halves of a principal are undecided."""
        return sum(each.undecided_of(principal) for each in self._waiting.values())

    def handle(self, cluster: str, topic: str, owner: str | None, transaction_id: str) -> str:
        """Return what a producer decides a half by."""
        return half_handle(cluster, Identity(topic, owner or "", transaction_id))

    def named(self, handle: str) -> NamedHalf | None:
        """Return which half a handle names; None: it is one of the store's, or of no cluster here."""
        parsed = parse_half_handle(handle)
        waiting = None if parsed is None else self._waiting.get(parsed[0])
        return None if parsed is None or waiting is None else NamedHalf(waiting, parsed[1])

    def end(
        self,
        half: NamedHalf,
        state: State,
        *,
        group: str,
        owner: str | None,
        from_check: bool,
        done: Callable[[str], None],
    ) -> None:
        """Have a half decided by its owner; `done` is called with its outcome's text (`half_outcome`)."""
        wanted = HalfDecision("", _WORDS[state], group, owner or "", from_check)
        half.waiting.requests.decide(half.identity, wanted, _ANSWER_SECONDS, done)

    def fetch_checks(self, group: str, count_max: int, owner: str | None) -> list[DueCheck]:
        """Return due checks of a producer group."""
        found: list[DueCheck] = []
        clusters = list(self._waiting.items())
        self._fetches += 1
        begin = self._fetches % max(1, len(clusters))
        for cluster, waiting in clusters[begin:] + clusters[:begin]:
            for check in waiting.fetch_checks(group, count_max - len(found), owner or ""):
                size = len(check.message.body) + sum(len(value or b"") for _, value in check.message.headers)
                found.append(DueCheck(_row(cluster, check), check, waiting.give_back, size))
        return found

    def on_checks(self, group: str, callback: Callable[[], None]) -> Callable[[], None]:
        """Call something when checks of a producer group become due; returns the undoing."""
        undoings = [waiting.on_checks(group, callback) for waiting in self._waiting.values()]

        def undo() -> None:
            for each in undoings:
                each()

        return undo


def _row(cluster: str, check: KafkaCheck) -> CheckRow:
    identity, message, times = check
    key, tag, properties = decode(KafkaRecord("", 0, 0, 0, message.key, b"", tuple(message.headers)))
    properties.pop("UNIQ_KEY", None)
    content = {
        "topic": identity.topic,
        "key": key or None,
        "tags": tag or None,
        "partitionId": -1 if message.partition is None else message.partition,
        "hashId": 0,
        "body": message.body,
        "properties": properties or None,
    }
    return CheckRow(half_handle(cluster, identity), identity.id, times, content, message.at_ms)
