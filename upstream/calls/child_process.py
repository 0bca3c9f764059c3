"""A process of its own for work that may end or block the process which does it; it is asked over a pipe.

It is a new interpreter, not a fork: it has no part of the node's files, connections or threads.
"""

from __future__ import annotations

import signal
import subprocess
import sys
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from typing import Any, Self

_MAIN = "import sys; sys.path[:] = {path!r}; from {module} import main; main()"


class ChildProcess:
    """A process that runs `main` of a module, which finds its end of the pipe by `own_end`; `with` kills it at its end.

    Attributes:
        pipe: Our end of it.
    """

    def __init__(self, module: str, *, output: int = subprocess.DEVNULL) -> None:
        """Start it; `output` is the descriptor for what it prints. Raises OSError: the machine has no more."""
        self.pipe, theirs = Pipe()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-c", _MAIN.format(path=sys.path, module=module), str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    @property
    def pid(self) -> int:
        """Of the process."""
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        """What it ended with; None while it lives."""
        return self._process.returncode

    def call(self, question: Any, seconds: float) -> Any:
        """Return its answer.

        Raises:
            TimeoutError: None came in time.
            EOFError, OSError: It ended before.
        """
        self.pipe.send(question)
        if not self.pipe.poll(seconds):
            raise TimeoutError
        return self.pipe.recv()

    def finish(self, seconds: float) -> None:
        """Let it end by itself, at the question None; it is killed where that takes longer."""
        try:
            self.pipe.send(None)
            self._process.wait(seconds)
        except (OSError, subprocess.TimeoutExpired):
            pass
        self.kill()

    def kill(self) -> None:
        """End it at once, whatever it does."""
        self.pipe.close()
        self._process.kill()
        self._process.wait()


def own_end() -> Connection:
    """Return a child's end of its pipe, whose descriptor is its first argument."""
    # An interrupt at the terminal is the parent's to handle.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    return Connection(int(sys.argv[1]))
