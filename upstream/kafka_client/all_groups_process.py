"""A survey in a process of its own, which may die.

librdkafka ends the whole process (an assertion, `eonce->refcnt > 0`) when the connection to a group's coordinator
breaks while it is asked about groups; seen with 2.16.0, its issue 4605. A recorder must outlive its cluster, so who
asks is a process that is started again with the next question. It is told everything over a pipe: the cluster's
settings, in which secrets are places, then questions by the names of `upstream.kafka.all_groups.Survey`.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from typing import Any, cast

from broker.runtime.seams import SystemClock
from conf.secrets import SecretUnreadable
from conf.sections.kafka import KafkaClusterConfig
from upstream.kafka.all_groups import Surveyed
from upstream.kafka.link import KafkaFailure, Place
from upstream.kafka_client.all_groups import LibrdkafkaSurvey
from upstream.kafka_client.package import KafkaUnusable, confluent

ANSWER_SECONDS = 120.0
"""Every question has bounds of its own; a process that takes longer is ended."""
_MAIN = "import sys; sys.path[:] = {path!r}; from upstream.kafka_client.all_groups_process import main; main()"


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
        self._process: subprocess.Popen[bytes] | None = None
        self._pipe: Connection | None = None
        self._start()

    @property
    def pid(self) -> int | None:
        """The process that asks; None: there is none now."""
        return None if self._process is None else self._process.pid

    def cluster_id(self) -> str:
        """Return the name that the cluster has given itself."""
        return cast("str", self._ask("cluster_id"))

    def group_names(self) -> list[str]:
        """Return all groups of consumers."""
        return cast("list[str]", self._ask("group_names"))

    def groups(self, names: Sequence[str]) -> dict[str, Surveyed]:
        """Return groups by name."""
        return cast("dict[str, Surveyed]", self._ask("groups", list(names)))

    def ends(self, places: Sequence[Place]) -> dict[Place, tuple[int, int]]:
        """Return first offsets and ends."""
        return cast("dict[Place, tuple[int, int]]", self._ask("ends", list(places)))

    def moments(self, wanted: Mapping[Place, int], seconds: float) -> dict[Place, int]:
        """Return timestamps of records."""
        return cast("dict[Place, int]", self._ask("moments", dict(wanted), seconds))

    def close(self) -> None:
        """Ask nothing more."""
        self._end()

    def _ask(self, name: str, *arguments: Any) -> object:
        if self._pipe is None:
            self._start()
        assert self._pipe is not None, "it was started"
        try:
            self._pipe.send((name, arguments))
            if not self._pipe.poll(ANSWER_SECONDS):
                raise EOFError
            answer = self._pipe.recv()
        except (EOFError, OSError):
            self._end()
            raise KafkaFailure(
                "SURVEY_ENDED", "the process that asks the cluster has ended, and is started again"
            ) from None
        if isinstance(answer, tuple):
            code, text = answer
            raise KafkaFailure(code, text)
        return answer.value

    def _start(self) -> None:
        ours, theirs = Pipe()
        command = [sys.executable, "-c", _MAIN.format(path=sys.path), str(theirs.fileno())]
        with theirs:
            self._process = subprocess.Popen(
                command, pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL
            )
        self._pipe = ours
        refused = None
        try:
            ours.send(self._given)
            refused = ours.recv()
        except (EOFError, OSError):
            self._end()
            raise KafkaFailure("SURVEY_ENDED", "the process that asks the cluster did not start") from None
        if refused is not None:
            self._end()
            kind, text = refused
            raise (SecretUnreadable if kind == "secret" else KafkaUnusable)(text)

    def _end(self) -> None:
        pipe, self._pipe = self._pipe, None
        process, self._process = self._process, None
        if pipe is not None:
            pipe.close()
        if process is not None:
            process.kill()
            process.wait()


class _Answer:
    """What was answered, however it looks."""

    def __init__(self, value: object) -> None:
        self.value = value


def main() -> None:
    """Serve the pipe whose descriptor is the first argument until its other end is closed."""
    import signal

    # An interrupt at the terminal is the recorder's to handle.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with Connection(int(sys.argv[1])) as pipe, suppress(EOFError, OSError):
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
