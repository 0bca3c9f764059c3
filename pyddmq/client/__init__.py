"""The Python client: `Producer`, `TransactionProducer` and `Consumer`, synchronous and typed, over DDMQ's Thrift.

What the demo, the command line and the tests use; docs/client.md explains it with examples. It imports nothing of
the node but the interface definitions and the table of codes.
"""

from pyddmq.client.codec import WireProtocol as WireProtocol
from pyddmq.client.codec import parse_address as parse_address
from pyddmq.client.connection import Connection as Connection
from pyddmq.client.delays import CancelOutcome as CancelOutcome
from pyddmq.client.errors import AccessRefused as AccessRefused
from pyddmq.client.errors import CallRejected as CallRejected
from pyddmq.client.errors import CallTimedOut as CallTimedOut
from pyddmq.client.errors import CannotConnect as CannotConnect
from pyddmq.client.errors import ClientError as ClientError
from pyddmq.client.errors import ClientMisuse as ClientMisuse
from pyddmq.client.errors import ConnectionLost as ConnectionLost
from pyddmq.client.errors import IllegalMessage as IllegalMessage
from pyddmq.client.errors import NodeShuttingDown as NodeShuttingDown
from pyddmq.client.errors import NotThrift as NotThrift
from pyddmq.client.errors import PullRefused as PullRefused
from pyddmq.client.errors import RateLimited as RateLimited
from pyddmq.client.errors import Refused as Refused
from pyddmq.client.errors import SendFailed as SendFailed
from pyddmq.client.errors import SendRefused as SendRefused
from pyddmq.client.errors import SendTimedOut as SendTimedOut
from pyddmq.client.errors import SequenceGap as SequenceGap
from pyddmq.client.errors import TlsFailed as TlsFailed
from pyddmq.client.errors import TopicKindMismatch as TopicKindMismatch
from pyddmq.client.errors import TopicNotAllowed as TopicNotAllowed
from pyddmq.client.errors import TopicNotFound as TopicNotFound
from pyddmq.client.errors import Unreachable as Unreachable
from pyddmq.client.producer import Producer as Producer
from pyddmq.client.pulling.consumer import Consumer as Consumer
from pyddmq.client.pulling.fetcher import Fetcher as Fetcher
from pyddmq.client.pulling.fetches import FetchedMessage as FetchedMessage
from pyddmq.client.pulling.fetches import FetchedQueue as FetchedQueue
from pyddmq.client.pulling.pulls import GroupStats as GroupStats
from pyddmq.client.pulling.pulls import PulledMessage as PulledMessage
from pyddmq.client.sends import OutgoingMessage as OutgoingMessage
from pyddmq.client.sends import SendReceipt as SendReceipt
from pyddmq.client.tls import Tls as Tls
from pyddmq.client.transaction_producer import TransactionProducer as TransactionProducer
from pyddmq.client.transactions import AsyncTransactionListener as AsyncTransactionListener
from pyddmq.client.transactions import LocalState as LocalState
from pyddmq.client.transactions import TransactionListener as TransactionListener
from pyddmq.client.transactions import TransactionMessage as TransactionMessage
from pyddmq.client.transactions import TransactionResult as TransactionResult
