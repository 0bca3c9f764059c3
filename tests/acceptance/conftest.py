"""Real nodes and commands: the installed `pyddmq` as processes, on free ports and temporary directories."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import end_with_test
from tests.forking import FORKS, PYDDMQ, Forked
from tests.patient import PATIENCE_SECONDS

TRIES = 20
"""For what depends on who is faster."""

FREE_PORTS = ("--producer-port", "0", "--consumer-port", "0", "--admin-port", "0")

CONFIGURATION = """
topics:
  permits: {queues: 4}
  orders: {queues: 2}
groups:
  - group: permits-audit
    topics:
      - topic: permits
        actions: [Json, Async, PullServer]
        orderKey: "$['case:concept:name']"
        maxPullBatchSize: 32
        timeout: 1500
        maxRetry: 10
        retryIntervals: [10, 20, 50, 100]
  - group: billing
    topics:
      - {topic: orders, orderKey: KEY, actions: [Async, PullServer], timeout: 60000, retryIntervals: [1]}
  - group: billing-dead-letters
    topics:
      - {topic: "%DLQ%billing", actions: [PullServer]}
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """How a command ended."""

    code: int
    out: str
    err: str

    def json_lines(self) -> list[Any]:
        """Values of the lines on stdout."""
        return [json.loads(line) for line in self.out.splitlines()]


def environment() -> dict[str, str]:
    """Return the environment of commands: no colours, no addresses from outside."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYDDMQ_")}
    return {**kept, "NO_COLOR": "1", "TERM": "dumb", "COLUMNS": "200"}


def command(*arguments: str | Path, cwd: Path | None = None, stdin: str | None = None) -> Done:
    """Run `pyddmq` with these arguments to its end, in a process of its own; forked where that is the same."""
    words, around = [str(each) for each in arguments], environment()
    if FORKS.fits(around):
        code, out, err = FORKS.run(
            words, cwd=cwd or Path.cwd(), environment=around, stdin=stdin, seconds=PATIENCE_SECONDS
        )
    else:
        code, out, err = run_from_nothing(words, cwd, around, stdin)
    if code is None:
        pytest.fail(f"`pyddmq {' '.join(words)}` did not end; it said:\n{out[-2000:]}\n{err[-2000:]}")
    return Done(code=code, out=out, err=err)


def run_from_nothing(
    words: Sequence[str], cwd: Path | None, around: dict[str, str], stdin: str | None
) -> tuple[int | None, str, str]:
    """Do as `Forks.run`, by the installed command and an interpreter that starts."""
    try:
        done = subprocess.run(
            [PYDDMQ, *words],
            capture_output=True,
            text=True,
            cwd=cwd,
            input=stdin,
            stdin=None if stdin is not None else subprocess.DEVNULL,
            timeout=PATIENCE_SECONDS,
            env=around,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        out, err = ((each or b"").decode(errors="replace") for each in (error.stdout, error.stderr))
        return None, out, err
    return done.returncode, done.stdout, done.stderr


def kill_a_run(arguments: Sequence[str], when: Callable[[], object], left: Callable[[], object] = lambda: True) -> None:
    """Start `pyddmq` and kill it when a condition holds; where it was over sooner, it is started again.

    Args:
        arguments: Of the command.
        when: Asked again and again while it runs.
        left: Whether it was killed soon enough.
    """
    for _ in range(TRIES):
        run = subprocess.Popen([PYDDMQ, *arguments], stdout=subprocess.DEVNULL, env=environment())
        while not when() and run.poll() is None:
            pass
        run.kill()
        if run.wait(PATIENCE_SECONDS) == -signal.SIGKILL and left():
            return
    pytest.fail(f"`pyddmq {' '.join(arguments)}` was over {TRIES} times before it could be killed")


class NodeProcess:
    """`pyddmq serve` as a process.

    Attributes:
        ready: The ready line (D24), parsed.

    `before` stands in front of the command, as `nice` would. `forked`: without the start of an interpreter.
    """

    def __init__(
        self, arguments: Sequence[str | Path], cwd: Path, *, before: Sequence[str] = (), forked: bool = False
    ) -> None:
        self._log = (cwd / "node.log").open("ab")
        self.log_path = cwd / "node.log"
        words = ["serve", "--json", *map(str, arguments)]
        self.process: subprocess.Popen[str] | Forked
        if forked and FORKS.fits(environment()):
            self.process = FORKS.start(words, cwd=cwd, environment=environment(), stderr=self._log.fileno())
            end_with_test(self.process)
        else:
            self.process = subprocess.Popen(
                [*before, PYDDMQ, *words],
                stdout=subprocess.PIPE,
                stderr=self._log,
                text=True,
                cwd=cwd,
                env=environment(),
            )
        assert self.process.stdout is not None
        watchdog = threading.Timer(PATIENCE_SECONDS, self.process.kill)
        watchdog.start()
        line = self.process.stdout.readline()
        watchdog.cancel()
        self.ready: dict[str, str] = json.loads(line) if line else {}
        if not line:
            self.stop(signal.SIGKILL)
            raise AssertionError(f"no ready line; the log says:\n{self.log_path.read_text()[-3000:]}")

    def stop(self, number: int = signal.SIGTERM) -> int:
        """Send a signal and wait for the end; returns the exit code."""
        if self.process.poll() is None:
            self.process.send_signal(number)
        try:
            return self.process.wait(timeout=PATIENCE_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise
        finally:
            assert self.process.stdout is not None
            self.process.stdout.close()
            self._log.close()

    def thrift(self) -> list[str]:
        """Options that name the Thrift ports to `demo`."""
        return [*self.producer(), *self.consumer()]

    def producer(self) -> list[str]:
        """Option that names the producer port."""
        return ["--producer", self.ready["producer"]]

    def consumer(self) -> list[str]:
        """Option that names the consumer port."""
        return ["--consumer", self.ready["consumer"]]

    def admin(self) -> list[str]:
        """Option that names the admin port."""
        return ["--admin", self.ready["admin"]]


StartNode = Callable[..., NodeProcess]


@pytest.fixture
def start_node(tmp_path: Path) -> Iterator[StartNode]:
    """Start nodes with free ports and a data directory of the test's own; they are stopped at its end."""
    yield from started_nodes(tmp_path, forked=True)


def started_nodes(tmp_path: Path, *, forked: bool) -> Iterator[StartNode]:
    """What `start_node` yields and does; nodes that are not `forked` are started by the installed command."""
    nodes: list[NodeProcess] = []

    def start(*arguments: str | Path, configuration: str = CONFIGURATION) -> NodeProcess:
        file = tmp_path / "node.yaml"
        file.write_text(configuration)
        given = arguments or ("--config", file, "--data", tmp_path / "data")
        nodes.append(NodeProcess([*FREE_PORTS, *given], tmp_path, forked=forked))
        return nodes[-1]

    yield start
    for node in nodes:
        if node.process.poll() is None:
            node.stop(signal.SIGKILL)


@pytest.fixture
def node(start_node: StartNode) -> NodeProcess:
    """Start a node with the configuration above."""
    return start_node()
