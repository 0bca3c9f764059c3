"""Consumers inside the program: RocketMQ's push consumers over the embedded broker, without any network.

`Consumers.open` makes them; docs/consumers.md says how they are used. May import nothing above `broker`.
"""

from broker.consumer.broadcasting import BroadcastConsumer
from broker.consumer.concurrent import ConcurrentConsumer, ConcurrentContext, ConcurrentStatus
from broker.consumer.consumers import Consumers
from broker.consumer.options import ConsumerOptions
from broker.consumer.orderly import OrderlyConsumer, OrderlyContext, OrderlyStatus
from broker.consumer.reading import ConsumedMessage
from broker.consumer.shared import ExecutorRunner, run_inline
from broker.errors import QueuesOwned

__all__ = [
    "BroadcastConsumer",
    "ConcurrentConsumer",
    "ConcurrentContext",
    "ConcurrentStatus",
    "ConsumedMessage",
    "ConsumerOptions",
    "Consumers",
    "ExecutorRunner",
    "OrderlyConsumer",
    "OrderlyContext",
    "OrderlyStatus",
    "QueuesOwned",
    "run_inline",
]
