"""Clients and bounds for tests with real processes and sockets: nothing is given up because a machine is slow."""

from __future__ import annotations

from typing import Any

from proxy import client
from proxy.client import TransactionListener

PATIENCE_SECONDS = 240.0
"""When what never came is given up: far above what any machine takes, so that it is no assertion of a time."""
PATIENCE_MS = int(PATIENCE_SECONDS * 1000)
LINGER_MS = 60_000
"""For a pull that must get something; one that must get nothing names its own, short one."""


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
