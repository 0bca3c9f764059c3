"""Whether a member is stalled: the group's coordinator does not answer it, while the cluster answers others.

A client whose connection to the coordinator is lost and not made again reads nothing and reports nothing. So a member
that was not answered for several sessions, of a cluster that answers, is replaced.
"""

from __future__ import annotations

from broker.runtime.seams import Clock
from upstream.kafka.link import KafkaFailure

SESSIONS = 3
"""A member without an answer for this number of session timeouts, and the time of a revoke, is replaced."""
_GAP_SECONDS = 5.0
"""The cluster is queried every second: a longer gap means that it was away, or that the node was stopped."""
_UNANSWERED = frozenset({"TIMED_OUT", "TRANSPORT", "WAIT_COORD", "REQUEST_TIMED_OUT", "ALL_BROKERS_DOWN"})


class Silence:
    """That of one member."""

    def __init__(self, clock: Clock, session_seconds: float, revoke_seconds: float) -> None:
        self._clock = clock
        self._session_seconds = session_seconds
        self._stands_after = SESSIONS * session_seconds + revoke_seconds
        self._heard_at = 0.0
        self._cluster_at = 0.0
        self._answers_since = 0.0

    def begin(self) -> None:
        """A member has joined."""
        self._heard_at = self._clock.monotonic()

    def heard(self, failure: KafkaFailure | None = None) -> None:
        """The coordinator has answered, be it by a refusal, or has not."""
        if failure is None or failure.code not in _UNANSWERED:
            self._heard_at = self._clock.monotonic()

    def cluster_heard(self) -> None:
        """The cluster has answered, whatever the coordinator does."""
        now = self._clock.monotonic()
        if now - self._cluster_at > _GAP_SECONDS:
            self._answers_since = now
        self._cluster_at = now

    @property
    def _silent(self) -> float:
        """For how long the cluster has answered, and the coordinator has not."""
        return self._cluster_at - max(self._heard_at, self._answers_since)

    def trouble(self, *, waits: bool) -> KafkaFailure | None:
        """Return what is wrong with a member that was not answered for a session; `waits`: an answer is due."""
        silent = self._silent
        if not waits or silent < self._session_seconds:
            return None
        text = (
            f"the group's coordinator has not responded to this member for {silent:.0f} s, although the cluster "
            "responds; if this lasts for minutes, restart the broker that coordinates the group"
        )
        return KafkaFailure("STANDS", text)

    @property
    def is_over(self) -> bool:
        """Whether a member with such a trouble is to be replaced."""
        return self._silent >= self._stands_after
