"""A real node process, started by the installed command and killed by signal."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import yaml

from tests.conftest import end_with_test
from tests.forking import FORKS, Forked
from tests.patient import PATIENCE_SECONDS

PENDING = ("pyddmq_timers_pending", "pyddmq_delays_pending")
"""Gauges of what waits."""
COMMAND = Path(sys.executable).parent / "pyddmq"


class NodeProcess:
    """`pyddmq serve` on free ports, on one data directory, over many lives.

    Args:
        folder: Holds configuration, the node's log and, unless `data` says otherwise, its data.
        settings: The configuration as YAML would be read; ports are replaced by 0.
        data: The data directory.
    """

    def __init__(self, folder: Path, settings: dict[str, Any], *, data: Path | None = None) -> None:
        self.data = data or folder / "data"
        self.log = folder / "node.log"
        self._config = folder / "node.yaml"
        self._process: subprocess.Popen[str] | Forked | None = None
        self.producer: tuple[str, int] | None = None
        self.consumer: tuple[str, int] | None = None
        self.admin = ""
        self.configure(settings)

    @property
    def pid(self) -> int:
        """Process id of the running node."""
        assert self._process is not None
        return self._process.pid

    def configure(self, settings: dict[str, Any]) -> None:
        """Write the configuration file, in one step: a running node that sees it change reloads it."""
        node = settings["node"] | {"producerPort": 0, "consumerPort": 0, "adminPort": 0, "data": str(self.data)}
        new = self._config.with_suffix(".new")
        new.write_text(yaml.safe_dump(settings | {"node": node}))
        new.rename(self._config)

    def start(self, *, prefix: Sequence[str] = (), command: Sequence[str] = ()) -> bool:
        """Start and wait for the ready line (D24).

        Args:
            prefix: Put in front of the command; must leave the node's process id as it is.
            command: Takes the options of `serve`. Without it and a prefix the node is forked (`tests.forking`).

        Returns:
            False when it was killed by SIGKILL before it was ready.

        Raises:
            AssertionError: It ended otherwise; the text is the end of the node's log.
        """
        options = ["--config", str(self._config), "--data", str(self.data), "--json"]
        with self.log.open("a") as log:
            if prefix or command or not FORKS.fits(os.environ):
                words = [*prefix, *(command or (str(COMMAND), "serve")), *options]
                self._process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=log, text=True)
            else:
                words = ["serve", *options]
                self._process = FORKS.start(words, cwd=Path.cwd(), environment=os.environ, stderr=log.fileno())
                end_with_test(self._process)
        assert self._process.stdout is not None
        watchdog = threading.Timer(PATIENCE_SECONDS, self._process.kill)
        watchdog.start()
        line = self._process.stdout.readline()
        hung = watchdog.finished.is_set()
        watchdog.cancel()
        if not line:
            code = self.wait()
            assert not hung, f"the node does not become ready: {self.log.read_text()[-3000:]}"
            if code == -signal.SIGKILL:
                return False
            raise AssertionError(f"no ready line, exit code {code}: {self.log.read_text()[-3000:]}")
        ready = json.loads(line)
        self.producer = _address(ready["producer"])
        self.consumer = _address(ready["consumer"])
        self.admin = ready["admin"]
        return True

    def waiting(self) -> int:
        """Ask the node how many messages wait for their moment; it must be ready."""
        with urlopen(f"http://{self.admin}/metrics", timeout=PATIENCE_SECONDS) as answer:
            text = answer.read().decode()
        return sum(int(float(line.rpartition(" ")[2])) for line in text.splitlines() if line.startswith(PENDING))

    def kill(self) -> int:
        """SIGKILL, and wait until the process ended; returns the exit code."""
        self.signal(signal.SIGKILL)
        return self.wait()

    def stop(self) -> int:
        """SIGTERM; returns the exit code."""
        self.signal(signal.SIGTERM)
        return self.wait()

    def signal(self, number: signal.Signals) -> None:
        """Send a signal; harmless when the process ended."""
        assert self._process is not None
        self._process.send_signal(number)

    def close(self) -> None:
        """Leave nothing behind."""
        if self._process is not None:
            self.kill()

    async def ended(self, seconds: float) -> int | None:
        """Wait up to `seconds` for the process to end by itself; returns its exit code, None when it lives."""
        assert self._process is not None
        if self._process.poll() is not None:
            return self.wait()  # A signal that found it dead has reaped it.
        loop = asyncio.get_running_loop()
        gone = asyncio.Event()
        descriptor = os.pidfd_open(self.pid)
        loop.add_reader(descriptor, gone.set)
        try:
            await asyncio.wait_for(gone.wait(), seconds)
        except TimeoutError:
            return None
        finally:
            loop.remove_reader(descriptor)
            os.close(descriptor)
        return self.wait()

    def wait(self) -> int:
        """Wait until the process ended; returns its exit code."""
        assert self._process is not None
        process, self._process = self._process, None
        self.producer = self.consumer = None
        code = process.wait(PATIENCE_SECONDS)
        assert process.stdout is not None
        process.stdout.close()
        return code


def _address(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    return host, int(port)
