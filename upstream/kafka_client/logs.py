"""What librdkafka logs, as log lines of the node, without secrets."""

from __future__ import annotations

import logging
from collections.abc import Callable

import structlog

_log = structlog.get_logger(__name__)
_OF_NO_CONCERN = frozenset({"CONFWARN"})
"""That a setting for consumers means nothing to a producer, and the reverse: both are given all."""


class LogLines:
    """Stands where the package wants a `logging.Logger`, of which it calls `log` alone."""

    def __init__(self, cluster: str, hide: Callable[[str], str]) -> None:
        self._cluster = cluster
        self._hide = hide

    def log(self, level: int, text: str, *facts: object) -> None:
        """Write one line: facts are the kind of it, the name of the instance, and what it says."""
        kind = str(facts[0]) if facts else ""
        said = self._hide(str(facts[-1]) if facts else text)
        if level <= logging.DEBUG or kind in _OF_NO_CONCERN:
            _log.debug("kafka_client_said", cluster=self._cluster, kind=kind, text=said)
        elif level <= logging.INFO:
            _log.info("kafka_client_said", cluster=self._cluster, kind=kind, text=said)
        else:
            _log.warning("kafka_client_said", cluster=self._cluster, kind=kind, text=said)
