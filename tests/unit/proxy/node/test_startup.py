"""How far a recovery is: figures, log lines, and what the service manager is told over a real datagram socket."""

from __future__ import annotations

import io
import os
import socket
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from broker.opening.recovery import RecoveryProgress
from broker.runtime.metrics import Metrics
from proxy.node.startup import Startup
from proxy.node.views import RecoveryView
from proxy.port.network import send_datagram
from proxy.process.service_manager import ServiceManager, StartReporter
from pyddmq.testing import ManualClock, VirtualLoop
from tests.patient import PATIENCE_SECONDS


def scanning(clock: ManualClock, startup: list[RecoveryView], view: Any) -> Generator[RecoveryProgress, None, str]:
    """A recovery of 1,000 bytes, 100 per second."""
    for scanned in range(0, 1_000, 100):
        yield RecoveryProgress(scanned, 1_000, scanned // 10)
        clock.advance(1)
        startup.append(view())
    return "the store"


def test_progress_is_known_and_logged_every_few_seconds() -> None:
    """Percent and time left follow the scan; a line each 5 s and one at the end, gauges with them."""
    clock, metrics, loop = ManualClock(), Metrics(), VirtualLoop()
    startup = Startup(clock, metrics)
    views: list[RecoveryView] = []
    with capture_logs() as logs:
        assert loop.run_task(startup.open_log(scanning(clock, views, lambda: startup.view))) == "the store"
    assert (views[0].percent, views[0].eta_seconds) == (0.0, None)
    assert (views[5].scanned_bytes, views[5].percent, views[5].eta_seconds) == (500, 50.0, 6.0)
    assert views[5].sentence == "50 % of 1,000 bytes of the log, about 6 s left"
    assert [each["event"] for each in logs] == ["recovering", "recovered"]
    assert (logs[0]["percent"], logs[0]["records"], logs[1]["seconds"]) == (50.0, 50, 10.0)
    assert metrics.value("pyddmq_recovery_total_bytes") == 1_000
    assert metrics.value("pyddmq_recovery_scanned_bytes") == 900


def test_replay_of_the_acks_is_a_phase_of_its_own() -> None:
    """The log is done by then."""
    startup, loop = Startup(ManualClock(), Metrics()), VirtualLoop()
    seen: list[RecoveryView] = []

    def replay() -> Generator[None, None, int]:
        yield
        seen.append(startup.view)
        return 7

    assert loop.run_task(startup.run("acks", replay())) == 7
    assert (seen[0].phase, seen[0].percent) == ("acks", 100.0)
    assert seen[0].sentence == "the ack journal is replayed"


def test_cancelled_opening_closes_its_steps() -> None:
    """What the steps hold is given back at once."""
    closed = []

    def steps() -> Generator[RecoveryProgress, None, None]:
        try:
            while True:
                yield RecoveryProgress(0, 1)
        finally:
            closed.append(True)

    loop = VirtualLoop()
    task = loop.create_task(Startup(ManualClock(), Metrics(), pause_seconds=1).open_log(steps()))
    loop.run(seconds=3.5)
    task.cancel()
    loop.run(task.done)
    assert closed == [True]


@pytest.fixture
def manager_socket(tmp_path: Path) -> Generator[socket.socket, None, None]:
    """A service manager's socket."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.bind(str(tmp_path / "notify"))
        listening.settimeout(PATIENCE_SECONDS)
        yield listening


def test_service_manager_is_told(manager_socket: socket.socket) -> None:
    """The three messages of sd_notify, as its manual has them."""
    manager = ServiceManager(manager_socket.getsockname())
    manager.starting("recovering: 42 %")
    manager.ready("serving")
    manager.stopping("drains")
    assert manager_socket.recv(999) == b"STATUS=recovering: 42 %\nEXTEND_TIMEOUT_USEC=30000000"
    assert manager_socket.recv(999) == b"READY=1\nSTATUS=serving"
    assert manager_socket.recv(999) == b"STOPPING=1\nSTATUS=drains"


def test_nobody_to_tell_is_no_error(tmp_path: Path) -> None:
    """Without a manager, or with one that has gone, nothing happens."""
    ServiceManager("").ready("serving")
    ServiceManager(str(tmp_path / "gone")).ready("serving")
    assert not send_datagram("@pyddmq-nobody", b"x")


def test_abstract_sockets_are_reached() -> None:
    """Systemd may name its socket so."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        name = f"pyddmq-test-notify-{os.getpid()}"
        listening.bind(f"\0{name}".encode())
        listening.settimeout(PATIENCE_SECONDS)
        assert send_datagram(f"@{name}", b"READY=1")
        assert listening.recv(99) == b"READY=1"


def test_terminal_shows_a_line_and_takes_it_away() -> None:
    """Only a terminal gets it; it is written over in place."""

    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    class Recovering:
        startup: Any = Startup(ManualClock(), Metrics())

    for stream, shown in ((Terminal(), True), (io.StringIO(), False)):
        loop = VirtualLoop()
        node: Any = Recovering()
        task = loop.create_task(StartReporter(node, ServiceManager(""), terminal=stream).run())
        loop.run(seconds=0.6)
        task.cancel()
        loop.run(task.done)
        assert ("recovering: 0 %" in stream.getvalue()) == shown
        assert stream.getvalue().endswith("\r\x1b[K") == shown
