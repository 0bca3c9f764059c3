"""RocketMQ's name server and broker, and clients of it behind JSON lines: each a process of ours on the loopback."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from bench.servers.java import JVM_OPTIONS, JavaProcess
from bench.servers.maven import Programs
from bench.servers.processes import BenchError
from broker.tools.interchange import broker_conf

PORTS_FROM = 20_000


class RocketProcess(JavaProcess):
    """A JVM whose RocketMQ keeps its settings and logs in the folder; see `JavaProcess`."""

    def __init__(
        self,
        folder: Path,
        programs: Programs,
        arguments: Sequence[str],
        *,
        piped: bool = False,
        options: Sequence[str] = JVM_OPTIONS,
        core: int | None = None,
    ) -> None:
        super().__init__(
            folder,
            programs,
            arguments,
            piped=piped,
            options=[*options, f"-Drocketmq.client.logRoot={folder}"],
            core=core,
            environment={"ROCKETMQ_HOME": str(folder)},
        )


class NameServer(RocketProcess):
    """Where clients find the broker."""

    def __init__(self, folder: Path, programs: Programs, *, core: int | None = None) -> None:
        folder.mkdir(parents=True)
        [port] = free_ports(1)
        settings = folder / "namesrv.conf"
        settings.write_text(broker_conf({"listenPort": str(port), "bindAddress": "127.0.0.1"}))
        command = ["org.apache.rocketmq.namesrv.NamesrvStartup", "-c", str(settings)]
        super().__init__(folder, programs, command, core=core)
        self.address = f"127.0.0.1:{port}"
        self.wait_for("boot success")


class Broker(RocketProcess):
    """A broker on a store. Leaving the block kills it; `stop` before that closes the store.

    Args:
        folder: A folder of its own.
        programs: Class path.
        namesrv: Address of the name server.
        settings: Its broker.conf but for addresses.
        options: Options of the JVM.
        core: The core that it keeps to, if any.
    """

    def __init__(
        self,
        folder: Path,
        programs: Programs,
        namesrv: str,
        settings: Mapping[str, str],
        *,
        options: Sequence[str] = JVM_OPTIONS,
        core: int | None = None,
    ) -> None:
        folder.mkdir(parents=True)
        # The port, and the one two below for "VIP" clients.
        port = free_ports(3)[2]
        self.address = f"127.0.0.1:{port}"
        own = {
            "namesrvAddr": namesrv,
            "brokerIP1": "127.0.0.1",
            "bindAddress": "127.0.0.1",
            "listenPort": str(port),
            # Its part of a shutdown takes 6 s, and few have a timed message.
            "timerWheelEnable": "false",
        }
        settings_file = folder / "broker.conf"
        settings_file.write_text(broker_conf({**own, **settings}))
        command = ["org.apache.rocketmq.broker.BrokerStartup", "-c", str(settings_file)]
        super().__init__(folder, programs, command, options=options, core=core)
        self.wait_for("boot success")

    def __enter__(self) -> Broker:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()


class LineClient(RocketProcess):
    """A Java program that answers requests, JSON lines on its stdin, by JSON lines and then `{}`."""

    def write(self, request: Mapping[str, Any]) -> None:
        """Send a request without waiting for its answer."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()

    def answers(self) -> Iterator[dict[str, Any]]:
        """Yield the lines that answer one request.

        Raises:
            BenchError: The client reports an error, or ended.
        """
        assert self.process.stdout is not None
        error = ""
        for line in self.process.stdout:
            answer = json.loads(line)
            if not answer:
                if error:
                    raise BenchError(f"{error}, {self.logged()}")
                return
            if "error" in answer:
                error = answer["error"]
            else:
                yield answer
        raise BenchError(f"the client ended, {self.logged()}")

    def ask(self, **request: Any) -> list[dict[str, Any]]:
        """Send a request and return its answers."""
        self.write(request)
        return list(self.answers())


def free_ports(count: int) -> list[int]:
    """Return consecutive loopback ports that nobody listens on.

    Raises:
        BenchError: There are none.
    """
    for first in range(PORTS_FROM, 32_000, count):
        held = []
        try:
            for port in range(first, first + count):
                taken = socket.socket()
                held.append(taken)
                taken.bind(("127.0.0.1", port))
        except OSError:
            continue
        else:
            return [each.getsockname()[1] for each in held]
        finally:
            for taken in held:
                taken.close()
    raise BenchError("no free ports")
