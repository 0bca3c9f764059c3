"""A look at a cluster by a process of its own, which may die (`upstream.kafka_client.asking_process`)."""

from __future__ import annotations

from collections.abc import Collection
from contextlib import suppress
from typing import Any

from broker.runtime.seams import SystemClock
from conf.secrets import SecretUnreadable
from conf.sections.kafka import KafkaClusterConfig
from upstream.kafka.cluster_facts import ClusterFacts
from upstream.kafka_client.asking_process import Child, own_end
from upstream.kafka_client.look import look_at
from upstream.kafka_client.package import KafkaUnusable
from upstream.kafka_client.settings import Settings

ANSWER_SECONDS = 120.0
"""Every question has bounds of its own; a process that takes longer is ended."""
MODULE = __name__
_TRIES = 3
_ENDED = "the process that asks the cluster has ended before it answered, three times: the cluster is being restarted?"


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
    for _ in range(_TRIES):
        child = Child(MODULE)
        kind, found = "", None
        try:
            child.pipe.send((cluster, config, list(topics), list(groups)))
            if child.pipe.poll(ANSWER_SECONDS):
                kind, found = child.pipe.recv()
        except (EOFError, OSError):
            continue
        finally:
            child.end()
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
