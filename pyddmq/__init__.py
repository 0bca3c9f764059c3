"""pyddmq for programs: what they import, and nothing else of this project.

It has the client (`Producer`, `Consumer` and the rest of `__all__`). `pyddmq.actions` is for authors of actions,
`pyddmq.broker` for the broker inside a program, and `python -m pyddmq` is the command line. The client needs thriftpy2
and no room; it is imported on first use. This file must run on Python 3.8, like `__main__`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyddmq.client import *
    from pyddmq.client.aio.async_consumer import AsyncConsumer
    from pyddmq.client.aio.async_producer import AsyncProducer
    from pyddmq.client.aio.async_transaction_producer import AsyncTransactionProducer

__all__ = [
    "AccessRefused",
    "AsyncConsumer",
    "AsyncProducer",
    "AsyncTransactionListener",
    "AsyncTransactionProducer",
    "CallRejected",
    "CallTimedOut",
    "CancelOutcome",
    "CannotConnect",
    "ClientError",
    "ClientMisuse",
    "Connection",
    "ConnectionLost",
    "Consumer",
    "FetchedMessage",
    "FetchedQueue",
    "Fetcher",
    "GroupStats",
    "IllegalMessage",
    "LocalState",
    "NodeShuttingDown",
    "NotThrift",
    "OutgoingMessage",
    "Producer",
    "PullRefused",
    "PulledMessage",
    "RateLimited",
    "Refused",
    "SendFailed",
    "SendReceipt",
    "SendRefused",
    "SendTimedOut",
    "SequenceGap",
    "Tls",
    "TlsFailed",
    "TopicKindMismatch",
    "TopicNotAllowed",
    "TopicNotFound",
    "TransactionListener",
    "TransactionMessage",
    "TransactionProducer",
    "TransactionResult",
    "Unreachable",
    "WireProtocol",
    "parse_address",
]

_OF_ASYNCIO = {
    "AsyncConsumer": "async_consumer",
    "AsyncProducer": "async_producer",
    "AsyncTransactionProducer": "async_transaction_producer",
}
"""What is imported apart from the rest, since it brings asyncio along."""
_MODULES = ("actions", "broker", "client", "codes", "spark", "testing")

if not TYPE_CHECKING:
    # Type checkers see the names above, and none that are not there.

    def __getattr__(name: str) -> object:
        """Import a public name when it is first asked for."""
        if name in _MODULES:
            return import_module("pyddmq." + name)
        if name not in __all__:
            raise AttributeError(f"module 'pyddmq' has no attribute {name!r}")
        place = "pyddmq.client" if name not in _OF_ASYNCIO else "pyddmq.client.aio." + _OF_ASYNCIO[name]
        found: object = getattr(import_module(place), name)
        globals()[name] = found
        return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_MODULES})
