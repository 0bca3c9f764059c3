"""What is wrong with a cluster at present, told once when it begins, changes and ends."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from upstream.kafka.link import KafkaFailure
from upstream.kafka_client.package import failure_of

_LINK = frozenset({"ALL_BROKERS_DOWN", "AUTHENTICATION", "SASL_AUTHENTICATION_FAILED", "SSL"})
"""The cluster cannot be reached; an answer to anything shows that it can be again."""
_OF_NO_CONCERN = frozenset(
    {"TRANSPORT", "RESOLVE", "TIMED_OUT", "PARTITION_EOF", "MAX_POLL_EXCEEDED", "AUTO_OFFSET_RESET"}
)
"""One of several brokers is away, which librdkafka makes good; or it shows elsewhere."""


class Troubles:
    """Kept by threads; `tell` is called in whichever notices a change."""

    def __init__(self, tell: Callable[[KafkaFailure | None], object], hide: Callable[[str], str]) -> None:
        self._tell = tell
        self._hide = hide
        self._lock = threading.Lock()
        self._link: KafkaFailure | None = None
        self._refused: dict[str, KafkaFailure] = {}
        self._told: str | None = None

    @property
    def cut_off(self) -> bool:
        """Whether the cluster cannot be reached, as far as is known."""
        return self._link is not None

    def note(self, error: Any, topic: str = "") -> None:
        """Take an error of librdkafka's, of one topic or of all."""
        failure = failure_of(error, self._hide(error.str() or error.name()))
        if failure.code in _OF_NO_CONCERN:
            return
        with self._lock:
            if failure.code in _LINK:
                self._link = failure
            else:
                self._refused[topic] = failure
            self._tell_change()

    def answered(self) -> None:
        """The cluster has answered."""
        if self._link is not None:
            with self._lock:
                self._link = None
                self._tell_change()

    def allowed(self, *topics: str) -> None:
        """What was refused of these topics, and of all (an empty name), is given now."""
        if self._refused:
            with self._lock:
                for topic in ("", *topics):
                    self._refused.pop(topic, None)
                self._tell_change()

    def forget(self) -> None:
        """Other topics are asked for: what was refused of the former ones is over."""
        with self._lock:
            self._refused.clear()
            self._tell_change()

    def _tell_change(self) -> None:
        foremost = self._link or next(iter(self._refused.values()), None)
        told = str(foremost) if foremost is not None else None
        # The text of all brokers down counts them, so the code is what tells troubles apart.
        key = foremost.code if foremost is self._link and foremost is not None else told
        if key != self._told:
            self._told = key
            self._tell(foremost)
