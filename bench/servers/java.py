"""Servers and programs written in Java: each a process of ours, with a folder of its own, on the loopback."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from bench.servers.maven import Programs
from bench.servers.processes import BenchError, bound_to

END_SECONDS_MAX = 60
JVM_OPTIONS = (
    "-Xmx1g", "-XX:MaxDirectMemorySize=1g", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC",
    "-Djava.net.preferIPv4Stack=true",
)  # fmt: skip
"""For short lives on few cores: one compiler and one collector, none of which needs threads of its own."""


class JavaProcess:
    """One JVM with a home folder of its own; it listens on the loopback and dies with the block.

    Args:
        folder: Its home and working folder; its output goes to a file there.
        programs: The class path.
        arguments: Main class and what follows it.
        piped: Whether stdin is a pipe of ours.
        options: Options of the JVM.
        core: The core that it keeps to, if any; it then does not outlive this process either.
        environment: Variables beside those of this process.
    """

    def __init__(
        self,
        folder: Path,
        programs: Programs,
        arguments: Sequence[str],
        *,
        piped: bool = False,
        options: Sequence[str] = JVM_OPTIONS,
        core: int | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.log = folder / "output.txt"
        command = [
            *([] if core is None else bound_to(core)),
            "java", *options, f"-Duser.home={folder}", "-cp", programs.class_path, *arguments,
        ]  # fmt: skip
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                command,
                cwd=folder,
                env={**os.environ, **(environment or {})},
                stdin=subprocess.PIPE if piped else subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                encoding="utf-8",
            )

    def wait_for(self, sign: str) -> str:
        """Read its output until a line holds `sign`, and return that line.

        Raises:
            BenchError: It ended before.
        """
        assert self.process.stdout is not None
        seen = []
        for line in self.process.stdout:
            seen.append(line)
            if sign in line:
                return line
        raise BenchError(f"{sign!r} was not said, but {''.join(seen)[-2000:]!r}; {self.logged()}")

    def logged(self) -> str:
        """The last of its log, without what the logger says about itself."""
        lines = [line for line in self.log.read_text().splitlines() if "|-" not in line]
        return "the end of its log: " + "\n".join(lines)[-2000:]

    def stop(self) -> None:
        """SIGTERM, and wait: RocketMQ closes its store in a shutdown hook. Harmless when it has ended."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """SIGKILL, and wait."""
        self._end(signal.SIGKILL)

    def _end(self, number: signal.Signals) -> None:
        if self.process.poll() is None:
            self.process.send_signal(number)
        if self.process.stdout is not None and not self.process.stdout.closed:
            self.process.communicate(timeout=END_SECONDS_MAX)
