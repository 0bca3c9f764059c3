"""Processes of their own for questions to a cluster by which librdkafka may end the process that asks.

It does so (an assertion, `eonce->refcnt > 0`) when the connection to a group's coordinator breaks while it is asked
about groups by its AdminClient; seen with 2.16.0, its issue 4605. A child is told everything over a pipe: the cluster's
settings, in which secrets are places, and then its questions.
"""

from __future__ import annotations

import subprocess
import sys
from multiprocessing import Pipe
from multiprocessing.connection import Connection

_MAIN = "import sys; sys.path[:] = {path!r}; from {module} import main; main()"


class Child:
    """A process that runs `main` of a module, which finds its end of the pipe by `own_end`.

    Attributes:
        pipe: Our end of it.
    """

    def __init__(self, module: str) -> None:
        """Start it."""
        self.pipe, theirs = Pipe()
        command = [sys.executable, "-c", _MAIN.format(path=sys.path, module=module), str(theirs.fileno())]
        with theirs:
            # What it says on its way out (an assertion) is nobody's business: that it went is told.
            self._process = subprocess.Popen(
                command,
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )

    @property
    def pid(self) -> int:
        """Of the process."""
        return self._process.pid

    def end(self) -> None:
        """End it, whatever it does."""
        self.pipe.close()
        self._process.kill()
        self._process.wait()


def own_end() -> Connection:
    """Return a child's end of its pipe, whose descriptor is its first argument."""
    import signal

    # An interrupt at the terminal is the parent's to handle.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    return Connection(int(sys.argv[1]))
