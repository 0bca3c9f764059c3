"""A survey in a process of its own, which may die.

librdkafka ends the process that asks (an assertion, `eonce->refcnt > 0`) when the connection to a group's coordinator
breaks while its AdminClient is asked about groups; seen with 2.16.0, its issue 4605. A recorder must outlive its
cluster, so a child process asks, which is started again with the next question. Its first message has the cluster's
settings, in which secrets are places; its questions have the names of `upstream.kafka.all_groups.Survey`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, cast

from broker.runtime.seams import SystemClock
from conf.secrets import SecretUnreadable
from conf.sections.kafka import KafkaClusterConfig
from upstream.calls.child_process import ChildProcess, own_end
from upstream.kafka.all_groups import GroupNames, Surveyed
from upstream.kafka.link import KafkaFailure, KafkaPartition
from upstream.kafka_client.all_groups import LibrdkafkaSurvey
from upstream.kafka_client.package import KafkaUnusable, confluent

ANSWER_SECONDS = 120.0
"""Every question has bounds of its own; a process that takes longer is ended."""


class SurveyProcess:
    """`upstream.kafka.all_groups.Survey`, by a process."""

    def __init__(self, cluster: str, config: KafkaClusterConfig, *, client_id: str) -> None:
        """Start it; arguments as of `LibrdkafkaSurvey`.

        Raises:
            KafkaUnusable: The package is missing, or refuses a setting.
            SecretUnreadable: A secret cannot be had.
        """
        confluent()
        self._given = (cluster, config, client_id)
        self._child: ChildProcess | None = None
        self._start()

    @property
    def pid(self) -> int | None:
        """The process that asks; None: there is none now."""
        return None if self._child is None else self._child.pid

    def cluster_id(self) -> str:
        """Return the name that the cluster has given itself."""
        return cast("str", self._ask("cluster_id"))

    def group_names(self) -> GroupNames:
        """Return the groups of consumers."""
        return cast("GroupNames", self._ask("group_names"))

    def groups(self, names: Sequence[str]) -> dict[str, Surveyed]:
        """Return groups by name."""
        return cast("dict[str, Surveyed]", self._ask("groups", list(names)))

    def ends(self, places: Sequence[KafkaPartition]) -> dict[KafkaPartition, tuple[int, int]]:
        """Return first offsets and ends."""
        return cast("dict[KafkaPartition, tuple[int, int]]", self._ask("ends", list(places)))

    def moments(self, wanted: Mapping[KafkaPartition, int], seconds: float) -> dict[KafkaPartition, int]:
        """Return timestamps of records."""
        return cast("dict[KafkaPartition, int]", self._ask("moments", dict(wanted), seconds))

    def close(self) -> None:
        """Ask nothing more."""
        self._end()

    def _ask(self, name: str, *arguments: Any) -> object:
        child = self._child or self._start()
        try:
            answer = child.call((name, arguments), ANSWER_SECONDS)
        except (EOFError, OSError):
            self._end()
            raise KafkaFailure(
                "SURVEY_ENDED", "the process that queries the cluster has ended, and is started again"
            ) from None
        if isinstance(answer, tuple):
            code, text = answer
            raise KafkaFailure(code, text)
        return answer.value

    def _start(self) -> ChildProcess:
        try:
            child = self._child = ChildProcess(__name__)
            refused = child.call(self._given, ANSWER_SECONDS)
        except (EOFError, OSError):
            self._end()
            raise KafkaFailure("SURVEY_ENDED", "the process that queries the cluster did not start") from None
        if refused is not None:
            self._end()
            kind, text = refused
            raise (SecretUnreadable if kind == "secret" else KafkaUnusable)(text)
        return child

    def _end(self) -> None:
        child, self._child = self._child, None
        if child is not None:
            child.kill()


class _Answer:
    """What was answered, however it looks."""

    def __init__(self, value: object) -> None:
        self.value = value


def main() -> None:
    """Serve the pipe until its other end is closed."""
    with own_end() as pipe, suppress(EOFError, OSError):
        cluster, config, client_id = pipe.recv()
        try:
            survey = LibrdkafkaSurvey(cluster, config, client_id=client_id, clock=SystemClock())
        except (KafkaUnusable, SecretUnreadable) as error:
            pipe.send(("secret" if isinstance(error, SecretUnreadable) else "setting", str(error)))
            return
        pipe.send(None)
        while True:
            name, arguments = pipe.recv()
            try:
                answer: Any = _Answer(getattr(survey, name)(*arguments))
            except KafkaFailure as failure:
                answer = (failure.code, str(failure).removesuffix(f" ({failure.code})"))
            pipe.send(answer)
