"""`pyddmq` as a process of its own without the start of an interpreter: forked from one that has imported it.

Tests run the command and nodes many hundred times, and most of what a short command costs are its imports. So each
worker starts one process, this file, that imports the command line once and forks for each run. The child gets the
words, the folder, the environment and the three streams of its caller, and then does what the installed script does, to
the end of the interpreter; exit codes, signals and streams are those of any process. What a fork cannot show, that the
command starts from nothing, is shown by the tests that start it as a shell does (`test_installed`,
`test_first_steps`, the hostile and the encrypted nodes, those under `strace`).
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import importlib
import io
import json
import os
import pkgutil
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

PYDDMQ = Path(sys.executable).parent / "pyddmq"
_BYTES_MAX = 1 << 20
_STREAMS = 3
_AT_START = ("PYTHON", "LANG", "LC_", "TZ", "MALLOC")
"""Begins of names of variables that are read when an interpreter starts."""


class Forked:
    """A run, with what `subprocess.Popen` has of it.

    Attributes:
        pid: Its process.
        stdin: None; it gets what it was started with.
        stdout: Its standard output, where that was asked for.
        stderr: None.
        returncode: As `Popen` has it; null until `poll` or `wait` has seen its end.
    """

    stdin = stderr = None

    def __init__(self, answers: socket.socket, stdout: Any) -> None:
        self._answers = answers
        self.stdout = stdout
        self.returncode: int | None = None
        self.pid = int(answers.recv(_BYTES_MAX))
        # Its number may be another's once it is gone.
        self._handle = os.pidfd_open(self.pid)

    def poll(self) -> int | None:
        """Return the exit code, None while it runs."""
        if self.returncode is None and select.select([self._answers], [], [], 0)[0]:
            self._end()
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end. Raises subprocess.TimeoutExpired."""
        if self.returncode is None:
            if not select.select([self._answers], [], [], timeout)[0]:
                assert timeout is not None
                raise subprocess.TimeoutExpired("pyddmq", timeout)
            self._end()
        assert self.returncode is not None
        return self.returncode

    def send_signal(self, number: int) -> None:
        """Send a signal; harmless when it is gone."""
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._handle, number)

    def kill(self) -> None:
        """Send SIGKILL."""
        self.send_signal(signal.SIGKILL)

    def _end(self) -> None:
        self.returncode = int(self._answers.recv(_BYTES_MAX))
        self._answers.close()
        os.close(self._handle)


class Forks:
    """The process to fork from: started with the first run, gone with its caller."""

    def __init__(self) -> None:
        self._control: socket.socket | None = None
        self._born: dict[str, str] = {}

    def begin(self) -> None:
        """Take the environment as it is now for that of processes; the tests' own is made up by then."""
        self._born = _read_at_start(os.environ)

    def fits(self, environment: Mapping[str, str]) -> bool:
        """Whether an interpreter that starts in this environment would be as the one that is forked."""
        return _read_at_start(environment) == self._born

    def start(
        self,
        words: Sequence[str | Path],
        *,
        cwd: Path,
        environment: Mapping[str, str],
        stdin: int | None = None,
        stdout: int | None = None,
        stderr: int,
    ) -> Forked:
        """Start `pyddmq` with these words.

        Args:
            words: What stands behind the command.
            cwd: Its folder.
            environment: Of the new process; one that `fits`.
            stdin: A descriptor; None: nothing to read.
            stdout: Likewise; None: the run's `stdout` is a stream to read it from.
            stderr: A descriptor.
        """
        control = self._connected(environment)
        assert self.fits(environment), "an interpreter in this environment would be another one"
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        given = {"words": [str(each) for each in words], "cwd": str(cwd), "environment": dict(environment)}
        with contextlib.ExitStack() as passed:
            passed.enter_context(theirs)
            if stdin is None:
                stdin = passed.enter_context(open(os.devnull, "rb")).fileno()
            read = None
            if stdout is None:
                read, stdout = os.pipe()
                passed.callback(os.close, stdout)
            socket.send_fds(control, [json.dumps(given).encode()], [theirs.fileno(), stdin, stdout, stderr])
        return Forked(ours, None if read is None else open(read, encoding="utf-8"))

    def run(
        self,
        words: Sequence[str | Path],
        *,
        cwd: Path,
        environment: Mapping[str, str],
        stdin: str | None,
        seconds: float,
    ) -> tuple[int | None, str, str]:
        """Run `pyddmq` with these words to its end.

        Returns:
            Its exit code, None when it was killed since it did not end in `seconds`, and what it wrote to stdout and
            stderr.
        """
        with contextlib.ExitStack() as files:
            given, *said = (files.enter_context(tempfile.TemporaryFile()) for _ in range(_STREAMS))
            given.write((stdin or "").encode())
            given.seek(0)
            out, err = (each.fileno() for each in said)
            run = self.start(words, cwd=cwd, environment=environment, stdin=given.fileno(), stdout=out, stderr=err)
            code: int | None = None
            try:
                code = run.wait(seconds)
            except subprocess.TimeoutExpired:
                run.kill()
                run.wait()
            for each in said:
                each.seek(0)
            return code, said[0].read().decode(), said[1].read().decode()

    def _connected(self, environment: Mapping[str, str]) -> socket.socket:
        if self._control is None:
            self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            with theirs, open(os.devnull, "r+b") as null:
                # Not by `subprocess`: what that starts ends with its test.
                pid = os.posix_spawn(
                    sys.executable,
                    [sys.executable, __file__],
                    environment,
                    file_actions=[
                        *((os.POSIX_SPAWN_DUP2, null.fileno(), number) for number in range(_STREAMS)),
                        (os.POSIX_SPAWN_DUP2, theirs.fileno(), _STREAMS),
                    ],
                )
            atexit.register(_let_go, self._control, pid)
        return self._control


def _read_at_start(environment: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in environment.items() if name.startswith(_AT_START)}


def _let_go(control: socket.socket, pid: int) -> None:
    """End the process that was forked from, and wait until it is gone."""
    control.close()
    os.waitpid(pid, 0)


FORKS = Forks()


_WHEN_USED = (
    "actions.async_action", "actions.json_action", "actions.pull_server", "actions.transform", "actions.http.action",
    "uvloop", "watchfiles", "jsonpath", "anyio.to_thread", "anyio._backends._asyncio", "encodings.idna",
    "multiprocessing.reduction", "rich.markdown", "rich._emoji_codes", "typer.rich_utils", "typer._adapters",
    "lag.history", "broker.scheduled.timer.listing", "broker.scheduled.delay.listing", "upstream.operate.positions",
    "upstream.operate.heads",
)  # fmt: skip
"""Imported by a run when it comes to that, and not by a module of `proxy`."""


# What follows runs in that process and its children.


def _main() -> NoReturn:
    # As of the installed script, and before anything is imported: this file lies beside modules of other names.
    sys.path[0] = str(PYDDMQ.parent)
    from pyddmq.__main__ import main

    _import_all()
    given = _next_run(socket.socket(fileno=_STREAMS))
    os.chdir(given["cwd"])
    os.environ.clear()
    os.environ.update(given["environment"])
    _open_streams()
    sys.argv = [str(PYDDMQ), *given["words"]]
    try:
        main()
    except SystemExit as ended:
        _end_at_once(ended)
        raise
    raise AssertionError("the command ends by SystemExit")


def _end_at_once(ended: SystemExit) -> None:
    """End as the interpreter does, but for taking apart what was imported: that would copy all of it, page by page.

    Returns where it cannot: when the exit code is a text, or what was written cannot be flushed.
    """
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except OSError:
        return
    if isinstance(ended.code, int | None):
        os._exit(ended.code or 0)


def _import_all() -> None:
    """Import the command line with all its commands, and a node with what it imports when it is used.

    What there is then is no garbage: each run would look through all of it at its end, and copy it by that.
    """
    import proxy

    for name in (*(each.name for each in pkgutil.walk_packages(proxy.__path__, "proxy.")), *_WHEN_USED):
        # An extra may be missing, as it may where the command is installed.
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    gc.freeze()


def _open_streams() -> None:
    """Make the three streams anew, as the interpreter made them: their kind of file is another now."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        before = getattr(sys, name)
        newline = None if mode == "r" else "\n"
        # No test's file: it is open for as long as the process lives.
        made = open(  # noqa: SIM115
            before.fileno(), mode, encoding=before.encoding, errors=before.errors, newline=newline, closefd=False
        )
        assert isinstance(made, io.TextIOWrapper)
        made.reconfigure(line_buffering=before.line_buffering)
        setattr(sys, name, made)
        setattr(sys, f"__{name}__", made)


def _next_run(control: socket.socket) -> dict[str, Any]:
    """Fork for each run that is asked for, and return in the process of one."""
    while True:
        message, descriptors, _, _ = socket.recv_fds(control, _BYTES_MAX, 1 + _STREAMS)
        if not message:
            _reap(0)
            os._exit(0)
        if os.fork() == 0:
            control.close()
            return _kept(json.loads(message), *descriptors)
        for each in descriptors:
            os.close(each)
        _reap(os.WNOHANG)


def _reap(options: int) -> None:
    """Take notice of children that are gone; with options of 0 wait for all."""
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, options)[0]:
            pass


def _kept(given: dict[str, Any], answers: int, *streams: int) -> dict[str, Any]:
    """Fork once more, so that somebody waits for the run and tells its end; returns in the run."""
    pid = os.fork()
    if pid:
        for each in streams:
            os.close(each)
        os.write(answers, b"%d" % pid)
        _, status = os.waitpid(pid, 0)
        with contextlib.suppress(BrokenPipeError):
            os.write(answers, b"%d" % os.waitstatus_to_exitcode(status))
        os._exit(0)
    os.close(answers)
    for number, each in enumerate(streams):
        os.dup2(each, number)
        os.close(each)
    return given


if __name__ == "__main__":
    _main()
