"""The broker inside a program: what programs import of it. docs/storage.md and docs/consumers.md show how it is used.

    from pyddmq.broker import open_store

Needs the extra `server`. From its import on `actions`, `broker`, `conf`, `lag`, `proxy` and `upstream` are modules of
pyddmq in this process: a program that has modules of these names renames them.

Raises:
    ClientAlone: The extra is not installed.
    NameTaken: A module of the program has one of these names.
"""

from __future__ import annotations

from pyddmq.rooms import pin

pin("the embedded broker")

from broker.consumer import (
    BroadcastConsumer,
    ConcurrentConsumer,
    ConcurrentContext,
    ConcurrentStatus,
    ConsumedMessage,
    ConsumerOptions,
    Consumers,
    ExecutorRunner,
    OrderlyConsumer,
    OrderlyContext,
    OrderlyStatus,
    QueuesOwned,
)
from broker.embedded import log_to_stderr, open_store
from broker.errors import (
    DamagedRecord,
    DiskFull,
    FeatureMissing,
    MessageRefused,
    RecordGone,
    StoreError,
    StoreFailed,
    StoreInUse,
)
from broker.features import features
from broker.format.properties import parse_properties
from broker.format.record import split
from broker.format.unique_key import UniqueKeys
from broker.log.batch import BatchMessage, decode_batch, encode_batch
from broker.log.put import Put
from broker.log.shared_walk import together
from broker.options import StoreOptions
from broker.put_batch import put_batch
from broker.query import Listing, NotFound, QueryRefused, at_offset, by_id, by_key, by_unique_key
from broker.queues.consume_queue import FILLER
from broker.queues.time_search import offset_at
from broker.queues.topics import Topic
from broker.runtime.disk import RealDisk
from broker.runtime.disks.linux_aio import syncs_of
from broker.runtime.disks.private_disk import PrivateDisk
from broker.runtime.metrics import Metrics
from broker.runtime.rate_limited_log import RateLimitedLog
from broker.runtime.seams import Clock, Disk, Scheduler, SystemClock
from broker.runtime.steps import run_now
from broker.scheduled.delay.delays import Delays
from broker.scheduled.delay.puts import DelayedPuts
from broker.scheduled.timer.names import TimerOptions
from broker.scheduled.timer.puts import TimedPuts
from broker.scheduled.timer.timers import Timers
from broker.selectors import put_selected, select_by_hash
from broker.store import Store
from broker.tools.interchange import adopted
from broker.tools.readonly import ReadOnlyStore
from broker.transaction.names import State
from broker.transaction.transactions import Transactions

__all__ = [
    "FILLER",
    "BatchMessage",
    "BroadcastConsumer",
    "Clock",
    "ConcurrentConsumer",
    "ConcurrentContext",
    "ConcurrentStatus",
    "ConsumedMessage",
    "ConsumerOptions",
    "Consumers",
    "DamagedRecord",
    "DelayedPuts",
    "Delays",
    "Disk",
    "DiskFull",
    "ExecutorRunner",
    "FeatureMissing",
    "Listing",
    "MessageRefused",
    "Metrics",
    "NotFound",
    "OrderlyConsumer",
    "OrderlyContext",
    "OrderlyStatus",
    "PrivateDisk",
    "Put",
    "QueryRefused",
    "QueuesOwned",
    "RateLimitedLog",
    "ReadOnlyStore",
    "RealDisk",
    "RecordGone",
    "Scheduler",
    "State",
    "Store",
    "StoreError",
    "StoreFailed",
    "StoreInUse",
    "StoreOptions",
    "SystemClock",
    "TimedPuts",
    "TimerOptions",
    "Timers",
    "Topic",
    "Transactions",
    "UniqueKeys",
    "adopted",
    "at_offset",
    "by_id",
    "by_key",
    "by_unique_key",
    "decode_batch",
    "encode_batch",
    "features",
    "log_to_stderr",
    "offset_at",
    "open_store",
    "parse_properties",
    "put_batch",
    "put_selected",
    "run_now",
    "select_by_hash",
    "split",
    "syncs_of",
    "together",
]
