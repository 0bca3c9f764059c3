"""Clients that behave as DDMQ's own libraries for Go, Java, C++, PHP and Python do, to try a node with.

What they do is scripted from outside: what each does with results when it gets an exception, how long it leaves a node
out after which answer, how often it sends again, how it goes away. They run on any asyncio loop, a virtual one with the
simulated network too. `account` knows what they were promised and judges what they see.
"""

from __future__ import annotations

from tests.fakes.sdk.account import Account, Place
from tests.fakes.sdk.channel import Channel, Gone, connect_sockets
from tests.fakes.sdk.consumer import SdkConsumer
from tests.fakes.sdk.habits import CONSUMERS, PRODUCERS, ConsumerHabits, ProducerHabits
from tests.fakes.sdk.producer import NodeList, SdkProducer, Surroundings

__all__ = [
    "CONSUMERS",
    "PRODUCERS",
    "Account",
    "Channel",
    "ConsumerHabits",
    "Gone",
    "NodeList",
    "Place",
    "ProducerHabits",
    "SdkConsumer",
    "SdkProducer",
    "Surroundings",
    "connect_sockets",
]
