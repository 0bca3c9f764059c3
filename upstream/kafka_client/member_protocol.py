"""The group protocol of one cluster's members: as configured, or found by a look at the cluster (`auto`)."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

from upstream.kafka.cluster_facts import ClusterFacts
from upstream.kafka.group_protocol import AUTO, CLASSIC, REFUSED, ProtocolFound, found_by, stays_classic
from upstream.kafka.link import KafkaFailure, TopicSubscription

_HEARTBEAT = "ConsumerGroupHeartbeat"
"""The request that librdkafka names in its fatal error where a cluster has no KIP-848."""


def is_unsupported(failure: KafkaFailure) -> bool:
    """Whether a failure says that the cluster has no KIP-848."""
    return failure.code == "FATAL" and _HEARTBEAT in str(failure)


REPLACED = "FENCED_INSTANCE_ID"


def is_replaced(failure: KafkaFailure) -> bool:
    """Whether a failure says that another member has joined with the same `group.instance.id`."""
    return failure.code == REPLACED or (failure.code == "FATAL" and "group.instance.id" in str(failure))


class ProtocolChoice:
    """That of one cluster; asked in members' threads.

    Attributes:
        unanswered: What the last look said of a cluster that does not answer.
    """

    def __init__(self, configured: str, session_ms: int, look: Callable[[], ClusterFacts]) -> None:
        """Set up.

        Args:
            configured: `groupProtocol`.
            session_ms: `sessionTimeout`.
            look: Looks at the cluster; may take seconds.
        """
        self.is_auto = configured == AUTO
        self.unanswered = ""
        self._session_ms = session_ms
        self._look = look
        self._lock = threading.Lock()
        self._found = None if self.is_auto else ProtocolFound(configured)

    @property
    def trouble(self) -> str:
        """Why members are classic where KIP-848 was possible; "": they are not, or it is configured."""
        return "" if self._found is None else self._found.why

    def of(self, topics: Sequence[TopicSubscription]) -> str | None:
        """Return the protocol of a member that reads these topics; None: the cluster does not answer."""
        if self.is_auto and stays_classic(each.name for each in topics):
            return CLASSIC
        with self._lock:
            if self._found is None:
                facts = self._look()
                self.unanswered = facts.trouble
                if facts.trouble:
                    return None
                self._found = found_by(facts, self._session_ms)
            return self._found.protocol

    def refused(self) -> None:
        """Note that the cluster does not accept KIP-848 although its settings offer it."""
        self._found = REFUSED
