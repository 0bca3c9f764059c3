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
from collections.abc import Sequence
from pathlib import Path

from bench.measures import runs
from bench.progress import say
from bench.servers.processes import BenchError, cores, redis_version
from proxy.cli.tls.dev_certificates import make

COUNTS = {1: 6_000, 32: 48_000}
HANDSHAKES = 500
MEASURES = {"publish": runs.publish, "pull": runs.pull}


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, and print a table; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m bench.tls", description=__doc__)
    parser.add_argument("--repeat", type=int, default=3, help="rounds, of which the median counts")
    parser.add_argument("--share", type=float, default=1.0, help="part of the messages")
    parser.add_argument("--batch", type=int, action="append", choices=COUNTS, help="of these sizes alone")
    parser.add_argument("measures", nargs="*", metavar="MEASURE", help="publish, pull, handshake; all when left out")
    options = parser.parse_args(arguments)
    wanted = options.measures or [*MEASURES, "handshake"]
    kinds: tuple[runs.Kind, ...] = ("pyddmq", "redis") if redis_version() else ("pyddmq",)
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


if __name__ == "__main__":
    try:
        raise SystemExit(main())
    except BenchError as error:
        raise SystemExit(str(error)) from error
