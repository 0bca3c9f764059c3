"""Processes that are killed: a job of Spark with its JVM, an export, and a node that keeps its ports."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.crash.process import COMMAND
from tests.crash.sdk_campaign import FixedNode
from tests.patient import PATIENCE_SECONDS

ROOT = Path(__file__).parents[3]
QUICK = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""Of a JVM that lives for some seconds: its second compiler, and threads that collect garbage, cost as much again."""
DRIVER, JVM, BOTH = "driver", "JVM", "driver and JVM"


class NodeOfKills(FixedNode):
    """A node that keeps its ports, with settings of its own."""

    def __init__(self, folder: Path, settings: dict[str, Any]) -> None:
        self._settings = settings
        super().__init__(folder)

    def configure(self, settings: dict[str, Any]) -> None:
        """Write the configuration of this campaign, with the ports."""
        super().configure(self._settings)


class Killed:
    """A process that is started again and again, and killed.

    Args:
        words: What is run, from the root of the project.
        log: File for what it says.
        environment: Put over that of this process.
    """

    def __init__(self, words: list[str], log: Path, environment: dict[str, str] | None = None) -> None:
        self._words, self._log = words, log
        self._environment = environment or {}
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it."""
        assert self._process is None, "it runs"
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                self._words, cwd=ROOT, stdout=log, stderr=log, stdin=subprocess.DEVNULL,
                env=os.environ | {"SPARK_LOCAL_IP": "127.0.0.1"} | self._environment,
            )  # fmt: skip

    @property
    def pid(self) -> int:
        """Its process id."""
        assert self._process is not None, "it was started"
        return self._process.pid

    @property
    def code(self) -> int | None:
        """How it ended; None: it runs, or has not been started."""
        return None if self._process is None else self._process.poll()

    def wait(self) -> int:
        """Wait until it has ended by itself; returns the exit code."""
        assert self._process is not None, "it was started"
        process, self._process = self._process, None
        return process.wait(PATIENCE_SECONDS)

    def kill(self, whom: str = BOTH) -> None:
        """SIGKILL it, its JVM, or both, and wait until the first is gone; a driver without JVM ends by itself."""
        process = self._process
        if process is None:
            return
        jvms = [] if whom == DRIVER else children(process.pid)
        if whom != JVM:
            process.kill()
        for each in jvms:
            os.kill(each, signal.SIGKILL)
        if whom == JVM and not jvms:
            process.kill()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
        self._process = None
        process.wait(PATIENCE_SECONDS)

    def said(self) -> str:
        """The end of what it said."""
        return self._log.read_text(errors="replace")[-3000:] if self._log.exists() else ""


def job(folder: Path, given: dict[str, Any], environment: dict[str, str] | None = None) -> Killed:
    """Return a job of `tests.spark.kills.jobs`."""
    given = {"log": f"{folder}/spark.log", "master": "local[2]", **given}
    words = [sys.executable, "-m", "tests.spark.kills.jobs", json.dumps(given)]
    environment = {"PYSPARK_PYTHON": sys.executable, "JDK_JAVA_OPTIONS": QUICK, **(environment or {})}
    return Killed(words, folder / "job.log", environment)


def export(journal: Path, place: Path, folder: Path) -> Killed:
    """Return a run of `pyddmq lag export`."""
    return Killed([str(COMMAND), "lag", "export", "--journal", str(journal), "--to", str(place)], folder / "export.log")


def children(pid: int) -> list[int]:
    """Return the processes that a process has started itself and that live."""
    found = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        found += [int(each) for each in (task / "children").read_text().split()]
    return found
