"""A real node process, started by the installed command and killed by signal."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml

COMMAND = Path(sys.executable).parent / "pyddmq"
START_SECONDS_MAX = 60


class NodeProcess:
    """`pyddmq serve` on free ports, on one data directory, over many lives.

    Args:
        folder: Holds configuration, data and the node's log.
        settings: The configuration as YAML would be read; ports are replaced by 0.
    """

    def __init__(self, folder: Path, settings: dict[str, Any]) -> None:
        self.data = folder / "data"
        self.log = folder / "node.log"
        self._config = folder / "node.yaml"
        node = settings["node"] | {"producerPort": 0, "consumerPort": 0, "adminPort": 0, "data": str(self.data)}
        self._config.write_text(yaml.safe_dump(settings | {"node": node}))
        self._process: subprocess.Popen[str] | None = None
        self.producer: tuple[str, int] | None = None
        self.consumer: tuple[str, int] | None = None

    @property
    def pid(self) -> int:
        """Process id of the running node."""
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        """Start and wait for the ready line (D24).

        Raises:
            AssertionError: It did not come; the text is the end of the node's log.
        """
        command = [str(COMMAND), "serve", "--config", str(self._config), "--data", str(self.data), "--json"]
        with self.log.open("a") as log:
            self._process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            self._process.wait(START_SECONDS_MAX)
            raise AssertionError(f"no ready line: {self.log.read_text()[-3000:]}")
        ready = json.loads(line)
        self.producer = _address(ready["producer"])
        self.consumer = _address(ready["consumer"])

    def kill(self) -> None:
        """SIGKILL, and wait until the process is gone."""
        self._end(signal.SIGKILL)

    def stop(self) -> int:
        """SIGTERM; returns the exit code."""
        return self._end(signal.SIGTERM)

    def close(self) -> None:
        """Leave nothing behind."""
        if self._process is not None:
            self.kill()

    def _end(self, number: signal.Signals) -> int:
        assert self._process is not None
        process, self._process = self._process, None
        self.producer = self.consumer = None
        os.kill(process.pid, number)
        code = process.wait(START_SECONDS_MAX)
        assert process.stdout is not None
        process.stdout.close()
        return code


def _address(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    return host, int(port)
