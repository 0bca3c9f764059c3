"""A node for an example: `pyddmq serve` as a process, with free ports and data in a temporary folder."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from types import TracebackType


class RunningNode:
    """A node that runs until the end of the `with` block.

    Attributes:
        producer: `host:port` of its producer port.
        consumer: `host:port` of its consumer port.
    """

    def __init__(self, configuration: str) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="pyddmq-example-", ignore_cleanup_errors=True)
        folder = Path(self._folder.name)
        (folder / "node.yaml").write_text(configuration, encoding="utf-8")
        command = [sys.executable, "-m", "pyddmq", "serve", "--config", "node.yaml", "--data", "data", "--json"]
        command += ["--producer-port", "0", "--consumer-port", "0", "--admin-port", "0"]
        with (folder / "node.log").open("wb") as log:
            self._process = subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=log)
        assert self._process.stdout is not None
        ready = self._process.stdout.readline()  # one line of JSON, as soon as the node serves
        if not ready:
            sys.exit(f"the node did not start:\n{(folder / 'node.log').read_text(encoding='utf-8')}")
        addresses = json.loads(ready)
        self.producer: str = addresses["producer"]
        self.consumer: str = addresses["consumer"]

    def kill(self) -> None:
        """End it by SIGKILL, as a crash does."""
        self._process.kill()
        self._process.wait()

    def __enter__(self) -> RunningNode:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.terminate()
        self._process.communicate()
        self._folder.cleanup()


def conclude(failures: list[str]) -> None:
    """Print the verdict of an example; exit with code 1 when a check failed."""
    for failure in failures:
        print(f"FAILED: {failure}")
    if failures:
        sys.exit(1)
    print("all checks passed")
