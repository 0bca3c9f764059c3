"""A `pyddmq` for the lines of a shell that costs no start of an interpreter: it is forked (`tests.forking`)."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

from tests.forking import FORKS, PYDDMQ

_BYTES_MAX = 1 << 20
_STREAMS = 3
_one_at_a_time = threading.Lock()
_SCRIPT = """\
#!{python} -ISs
import json, os, socket, sys
control = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
control.connect({path!r})
given = {{"words": sys.argv[1:], "cwd": os.getcwd(), "environment": dict(os.environ)}}
socket.send_fds(control, [json.dumps(given).encode()], [0, 1, 2])
code = control.recv(100)
if not code:
    os.execv({pyddmq!r}, [{pyddmq!r}, *sys.argv[1:]])
sys.exit(int(code) if int(code) >= 0 else 128 - int(code))
"""


@contextlib.contextmanager
def shell_command() -> Iterator[str]:
    """Give a folder for the begin of PATH with a `pyddmq` that has words, folder, environment and streams of its shell.

    It passes no signals on: what is to be killed is started by the installed command.
    """
    with (
        tempfile.TemporaryDirectory(prefix="pyddmq-shell-") as folder,
        socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listening,
    ):
        path = f"{folder}/control"
        listening.bind(path)
        listening.listen()
        script = Path(folder) / "pyddmq"
        script.write_text(_SCRIPT.format(python=sys.executable, path=path, pyddmq=str(PYDDMQ)))
        script.chmod(0o755)
        accepting = threading.Thread(target=_accept, args=(listening,))
        accepting.start()
        yield folder
        listening.shutdown(socket.SHUT_RDWR)
        accepting.join()


def _accept(listening: socket.socket) -> None:
    runs = []
    with contextlib.suppress(OSError):
        while True:
            run = threading.Thread(target=_run, args=(listening.accept()[0],))
            run.start()
            runs.append(run)
    for run in runs:
        run.join()


def _run(control: socket.socket) -> None:
    """Run one command to its end; an environment that needs an interpreter of its own gets no answer."""
    with control:
        message, streams, _, _ = socket.recv_fds(control, _BYTES_MAX, _STREAMS)
        for each in streams:
            # The process that is forked from may start now: it must not keep a shell's pipe open.
            os.set_inheritable(each, False)
        given = json.loads(message)
        environment = given["environment"]
        run = None
        if FORKS.fits(environment):
            stdin, stdout, stderr = streams
            folder = Path(given["cwd"])
            with _one_at_a_time:
                run = FORKS.start(
                    given["words"], cwd=folder, environment=environment, stdin=stdin, stdout=stdout, stderr=stderr
                )
        for each in streams:
            os.close(each)
        if run is not None:
            control.send(b"%d" % run.wait())
