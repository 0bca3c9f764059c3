"""Kills in place of a system call, by strace's fault injection.

The process dies on entering the call: what it would have done is not done, everything before it is. Python's own start
makes hundreds of the same calls, so `learn` watches one start and remembers which of them touch the data directory.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.crash.moments import Moment, Phase

CALLS = {
    "pwritev2": 40, "fdatasync": 10, "io_submit": 40, "io_getevents": 40, "write": 60, "pread64": 10, "openat": 4,
    "close": 4, "fsync": 2, "rename": 2, "fallocate": 1, "ftruncate": 1, "mmap": 1, "newfstatat": 4, "unlink": 0,
}  # fmt: skip
"""Calls of the write path, and of the reads beside it: files by pwritev2, sockets by write. The number is how often
each comes within two seconds of work, at the least; 0: only while the node starts and stops."""

_CALL = re.compile(r"^(?P<pid>\d+) +(?P<call>\w+)\((?P<rest>.*)")


class SyscallReaper:
    """Kills by strace; see the module's text."""

    name = "system call"
    calls: Mapping[str, int] = CALLS
    command: Sequence[str] = ()

    def __init__(self, folder: Path, data: Path) -> None:
        """Keep the trace of `learn` in `folder`; `data` is the node's data directory."""
        self._trace = folder / "start.strace"
        self._data = data
        self._ordinals: dict[str, list[int]] = {}
        self._tracer: subprocess.Popen[str] | None = None

    @staticmethod
    def available() -> bool:
        """Whether strace is there and may trace."""
        if shutil.which("strace") is None:
            return False
        probe = subprocess.run(
            ["strace", "-D", "-f", "-qq", "-o", "/dev/null", "-e", "trace=fsync", "true"],
            check=False,
            capture_output=True,
        )
        return probe.returncode == 0 and not probe.stderr

    def learning_prefix(self) -> Sequence[str]:
        """Return what goes in front of the command of the start that `learn` reads."""
        calls = ",".join(self.calls)
        head = ("strace", "-D", "-f", "--seccomp-bpf", "-qq", "-y", "-s", "0")
        return (*head, "-o", str(self._trace), "-e", f"trace={calls}")

    def learn(self) -> dict[str, int]:
        """Read the traced start; returns how often each call touched the data directory."""
        counts: dict[str, int] = defaultdict(int)
        found: dict[str, list[int]] = defaultdict(list)
        first = ""
        for line in self._trace.read_text(errors="replace").splitlines():
            match = _CALL.match(line)
            if match is None:
                continue
            first = first or match["pid"]
            if match["pid"] != first:
                # strace counts per thread; the one writer is the first.
                continue
            call = match["call"]
            counts[call] += 1
            if str(self._data) in match["rest"]:
                found[call].append(counts[call])
        self._ordinals = dict(found)
        return {call: len(ordinals) for call, ordinals in found.items()}

    def prefix(self, moment: Moment) -> Sequence[str]:
        ordinals = self._ordinals.get(moment.call)
        if not ordinals:
            # Not a call of the recovery: the first one after it.
            return self._options(moment.call, 1, start=True)
        return self._options(moment.call, ordinals[moment.ordinal % len(ordinals)], start=True)

    def arm(self, pid: int, moment: Moment) -> None:
        assert moment.phase is not Phase.RECOVERY
        command = [*self._options(moment.call, moment.ordinal, start=False), "-p", str(pid)]
        self._tracer = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        assert self._tracer.stderr is not None
        for line in self._tracer.stderr:
            if f"Process {pid} attached" in line:
                break

    def disarm(self) -> None:
        tracer, self._tracer = self._tracer, None
        if tracer is None:
            return
        tracer.terminate()
        tracer.wait()
        assert tracer.stderr is not None
        tracer.stderr.close()

    def _options(self, call: str, ordinal: int, *, start: bool) -> list[str]:
        head = ["strace", "-f", "-o", "/dev/null"]
        if start:
            # Not --seccomp-bpf, which makes the start faster: strace 6.1 injects no signal with it.
            head += ["-D", "-qq"]
        return [*head, "-e", f"trace={call}", "-e", f"inject={call}:signal=SIGKILL:when={ordinal}"]
