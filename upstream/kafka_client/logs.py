"""What librdkafka logs, as log lines of the node, without secrets, and few of a kind.

A cluster that cannot be reached is told of twenty times a second, for each connection. So after one line of a kind the
next comes a minute later, with how many were left out.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

import structlog

from broker.runtime.seams import Clock

MINUTE = 60.0
_log = structlog.get_logger(__name__)
_OF_NO_CONCERN = frozenset({"CONFWARN"})
"""That a setting for consumers means nothing to a producer, and the reverse: both are given all."""


class LogLines:
    """Stands where the package wants a `logging.Logger`, of which it calls `log` alone."""

    def __init__(self, cluster: str, hide: Callable[[str], str], clock: Clock) -> None:
        self._cluster = cluster
        self._hide = hide
        self._clock = clock
        self._quiet_until: dict[str, float] = {}
        self._left_out: dict[str, int] = {}

    def log(self, level: int, text: str, *facts: object) -> None:
        """Write one line: facts are the kind of it, the name of the instance, and what it says."""
        kind = str(facts[0]) if facts else ""
        said = self._hide(str(facts[-1]) if facts else text)
        if level <= logging.DEBUG or kind in _OF_NO_CONCERN:
            _log.debug("kafka_client_said", cluster=self._cluster, kind=kind, text=said)
            return
        now = self._clock.monotonic()
        if now < self._quiet_until.get(kind, now):
            # Lines of several threads may be counted as one; none is written that should not be.
            self._left_out[kind] = self._left_out.get(kind, 0) + 1
            return
        self._quiet_until[kind] = now + MINUTE
        left_out = self._left_out.pop(kind, 0)
        if level <= logging.INFO:
            _log.info("kafka_client_said", cluster=self._cluster, kind=kind, text=said, left_out=left_out)
        else:
            _log.warning("kafka_client_said", cluster=self._cluster, kind=kind, text=said, left_out=left_out)
