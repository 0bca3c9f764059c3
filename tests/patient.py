"""Clients and bounds for tests with real processes and sockets: nothing is given up because a machine is slow."""

from __future__ import annotations

import contextlib
import os
import random
import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

from pyddmq import TransactionListener, client

PATIENCE_SECONDS = float(os.environ.get("PYDDMQ_TESTS_PATIENCE", "240"))
"""When what never came is given up: far above what any machine takes, so that it is no assertion of a time. Less where
a fault was put in, and much is waited for in vain (`tests.mutants`)."""
PATIENCE_MS = int(PATIENCE_SECONDS * 1000)
LINGER_MS = int(PATIENCE_SECONDS * 250)
"""For a pull that must get something; one that must get nothing names its own, short one."""


def until(condition: Callable[[], object], what: str) -> None:
    """Ask again and again until something holds; a test that waits in vain fails.

    Args:
        condition: Asked every few milliseconds.
        what: What is waited for.
    """
    deadline, pause = time.monotonic() + PATIENCE_SECONDS, threading.Event()
    while not condition():
        pause.wait(0.005)
        assert time.monotonic() < deadline, f"waited in vain for {what}"


def quiet_ports(count: int) -> list[int]:
    """Return ports that can be listened on now, below those that the system gives to outgoing connections.

    A port of that range, chosen free and bound later, may be taken in between.
    """
    with open("/proc/sys/net/ipv4/ip_local_port_range") as file:
        first = int(file.read().split()[0])
    found: set[int] = set()
    while len(found) < count:
        port = random.randrange(first // 2, first)
        with contextlib.suppress(OSError):
            socket.create_server(("127.0.0.1", port)).close()
            found.add(port)
    return list(found)


@contextlib.contextmanager
def nobody_there() -> Iterator[str]:
    """Give an address where nobody listens, and nobody else can begin to."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{held.getsockname()[1]}"


class Consumer(client.Consumer):
    """The client's consumer with an answer's wait of its own; all else is as there."""

    def __init__(self, address: str, group: str, topic: str | None = None, **options: Any) -> None:
        super().__init__(address, group, topic, **{"timeout_ms": PATIENCE_MS, "patience_ms": PATIENCE_MS, **options})


class Producer(client.Producer):
    """The client's producer with an answer's wait of its own; all else is as there."""

    def __init__(self, address: str, **options: Any) -> None:
        super().__init__(address, **{"timeout_ms": PATIENCE_MS, **options})


class TransactionProducer(client.TransactionProducer):
    """The client's transaction producer with an answer's wait of its own; all else is as there."""

    def __init__(self, address: str, group: str, listener: TransactionListener, **options: Any) -> None:
        super().__init__(address, group, listener, **{"timeout_ms": PATIENCE_MS, **options})
