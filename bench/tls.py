"""`python -m bench.tls`: what TLS costs a node and Redis, each beside itself without it (docs/performance.md).

Processor time of the server per message, publish and pull + ack, at batch 1 and 32, in turns, so that what else the
machine does falls on all alike; then full handshakes per second of the server's processor time.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import socket
import ssl
import statistics
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench.clients.processes import Kind
from bench.measures import runs
from bench.progress import say
from bench.servers.processes import BenchError, cores, redis_version
from conf.sections.tls import TlsFiles
from proxy.cli.tls.dev_certificates import make
from proxy.tls.channel import TlsChannel
from proxy.tls.files import RealTlsFiles, TlsContext

COUNTS = {1: 6_000, 32: 48_000}
HANDSHAKES = 500
SIZES = (100, 1_100, 36_000)
MEASURES = {"publish": runs.publish, "pull": runs.pull}


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, and print a table; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m bench.tls", description=__doc__)
    parser.add_argument("--repeat", type=int, default=3, help="rounds, of which the median counts")
    parser.add_argument("--share", type=float, default=1.0, help="part of the messages")
    parser.add_argument("--batch", type=int, action="append", choices=COUNTS, help="of these sizes alone")
    parser.add_argument(
        "measures", nargs="*", metavar="MEASURE", help="publish, pull, channel, handshake; all when left out"
    )
    options = parser.parse_args(arguments)
    wanted = options.measures or [*MEASURES, "channel", "handshake"]
    kinds: tuple[Kind, ...] = ("pyddmq", "redis") if redis_version() else ("pyddmq",)
    with tempfile.TemporaryDirectory(prefix="pyddmq-bench-") as name:
        folder = Path(name)
        tls = folder / "tls"
        make(tls, names=("127.0.0.1", "localhost"), client="bench", days=1)
        print(f"load average {os.getloadavg()[0]:.1f}, {options.repeat} rounds, us of server CPU per message")
        print("| measure | server | batch | plain | TLS | ratio |\n| --- | --- | --- | --- | --- | --- |")
        for measure, run in MEASURES.items():
            for batch, count in COUNTS.items() if measure in wanted else ():
                if batch not in (options.batch or COUNTS):
                    continue
                for kind in kinds:
                    found: dict[bool, list[float]] = {False: [], True: []}
                    for number in range(options.repeat):
                        for encrypted in (False, True):
                            say(f"{measure} {kind} batch {batch} {'TLS' if encrypted else 'plain'} {number + 1}")
                            figures = run(
                                kind,
                                folder,
                                cores(),
                                batch=batch,
                                count=int(count * options.share),
                                tls=tls if encrypted else None,
                            )
                            found[encrypted].append(figures.cpu_us or 0.0)
                    plain, secured = (statistics.median(found[each]) for each in (False, True))
                    ratio = secured / plain if plain else 0.0
                    print(f"| {measure} | {kind} | {batch} | {plain:.1f} | {secured:.1f} | {ratio:.2f} |", flush=True)
        for size in SIZES if "channel" in wanted else ():
            received, written = channel_us(tls, size)
            print(f"the channel alone, {size:,} bytes: {received:.1f} us to receive, {written:.1f} us to write")
        if "handshake" in wanted:
            print(f"\na handshake, TLS 1.3, EC keys: {handshake_us(folder, tls):.0f} us of server CPU")
    return 0


def handshake_us(folder: Path, tls: Path) -> float:
    """Return the server's processor time for a connection with its handshake, microseconds."""
    context = ssl.create_default_context(cafile=str(tls / "ca.crt"))
    with runs.started("pyddmq", folder, cores().server, tls=tls) as server:
        for count in (20, HANDSHAKES):
            server.process.wait_idle()
            before = server.process.cost()
            with contextlib.ExitStack() as opened:
                for _ in range(count):
                    plain = opened.enter_context(socket.create_connection(server.target.publish_address, timeout=60))
                    opened.enter_context(context.wrap_socket(plain, server_hostname="127.0.0.1"))
            server.process.wait_idle()
            cost = server.process.cost().since(before)
        return cost.process / HANDSHAKES * 1e6


class _Alone:
    """A channel's port, connection and socket in one: nothing of a node is measured with it."""

    def __init__(self, context: TlsContext) -> None:
        self.current = context
        self.out = bytearray()
        self.transport: Any = None

    def __getattr__(self, name: str) -> Any:
        return lambda *_: None

    def connection_made(self, transport: Any) -> None:
        """Keep what the connection would write to."""
        self.transport = transport

    def ask(self, channel: TlsChannel) -> None:
        """Shake hands at once."""
        channel.shake()

    def write(self, data: bytes) -> None:
        """Take ciphertext as the socket would."""
        self.out += data


def channel_us(tls: Path, size: int, count: int = 2_000) -> tuple[float, float]:
    """Return processor time of the channel alone, microseconds: to receive so many bytes, and to write them."""
    files = TlsFiles(certificate=str(tls / "node.crt"), key=str(tls / "node.key"))
    alone = _Alone(RealTlsFiles().build(files))
    channel = TlsChannel(alone, alone)
    channel.connection_made(alone)  # type: ignore[arg-type]
    received, sent = ssl.MemoryBIO(), ssl.MemoryBIO()
    context = ssl.create_default_context(cafile=str(tls / "ca.crt"))
    client = context.wrap_bio(received, sent, server_hostname="127.0.0.1")
    while channel.handshaking:
        with contextlib.suppress(ssl.SSLWantReadError):
            client.do_handshake()
        channel.data_received(sent.read())
        received.write(bytes(alone.out))
        alone.out.clear()
    records = []
    for _ in range(count):
        client.write(b"x" * size)
        records.append(sent.read())
    begun = time.process_time()
    for each in records:
        channel.data_received(each)
    middle = time.process_time()
    body = b"y" * size
    for _ in range(count):
        alone.transport.write(body)
        alone.out.clear()
    return (middle - begun) / count * 1e6, (time.process_time() - middle) / count * 1e6


if __name__ == "__main__":
    try:
        raise SystemExit(main())
    except BenchError as error:
        raise SystemExit(str(error)) from error
