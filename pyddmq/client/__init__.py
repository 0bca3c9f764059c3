"""The Python client: `Producer`, `TransactionProducer` and `Consumer`, synchronous and typed, over DDMQ's Thrift.

What the demo, the command line and the tests use; docs/client.md explains it with examples. It imports nothing of
the node but the interface definitions and the table of codes.
"""

from pyddmq.client.codec import WireProtocol, parse_address
from pyddmq.client.connection import Connection
from pyddmq.client.delays import CancelOutcome
from pyddmq.client.errors import (
    AccessRefused,
    CallRejected,
    CallTimedOut,
    CannotConnect,
    ClientError,
    ClientMisuse,
    ConnectionLost,
    IllegalMessage,
    NodeShuttingDown,
    NotThrift,
    PullRefused,
    RateLimited,
    Refused,
    SendFailed,
    SendRefused,
    SendTimedOut,
    SequenceGap,
    TlsFailed,
    TopicKindMismatch,
    TopicNotAllowed,
    TopicNotFound,
    Unreachable,
)
from pyddmq.client.producer import Producer
from pyddmq.client.pulling.consumer import Consumer
from pyddmq.client.pulling.fetcher import Fetcher
from pyddmq.client.pulling.fetches import FetchedMessage, FetchedQueue
from pyddmq.client.pulling.pulls import GroupStats, PulledMessage
from pyddmq.client.sends import OutgoingMessage, SendReceipt
from pyddmq.client.tls import Tls
from pyddmq.client.transaction_producer import TransactionProducer
from pyddmq.client.transactions import (
    AsyncTransactionListener,
    LocalState,
    TransactionListener,
    TransactionMessage,
    TransactionResult,
)

__all__ = [
    "AccessRefused",
    "AsyncTransactionListener",
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
