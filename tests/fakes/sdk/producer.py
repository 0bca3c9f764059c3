"""An imitated producer: one message after the other, sent again until it is acknowledged.

A process of a library has one list of nodes for all its threads, and leaves nodes of it out for a while.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from random import Random
from typing import Any, NamedTuple

from tests.fakes.codec import Reply
from tests.fakes.sdk.account import Account, Message
from tests.fakes.sdk.channel import Address, Channel, Connect, Gone
from tests.fakes.sdk.habits import ProducerHabits

ODD_KEY = b"odd-key-text"
ODD_BYTES = b"\xb6\xa9\xb5\xa5\xba\xc5\xc2\xeb\xb0\xa1\xff\xfe"
assert len(ODD_KEY) == len(ODD_BYTES)
_KEEPS_NODE = range(11, 16)
_GAP = 48


class Surroundings(NamedTuple):
    """What every imitated client is given.

    Attributes:
        loop: Any asyncio loop.
        connect: Opens a connection.
        account: Of the run.
        random: Of the run.
        consumer: The consumer port; None while the node is known to be down.
        producer: The producer port, likewise.
        haste: Every time of a library is divided by this.
        month_ms: Milliseconds since the month began, for the names of producers that number their messages.
    """

    loop: asyncio.AbstractEventLoop
    connect: Connect
    account: Account
    random: Random
    consumer: Callable[[], Address | None]
    producer: Callable[[], Address | None]
    haste: float = 1.0
    month_ms: int = 0

    def chance(self, share: float) -> bool:
        """Draw."""
        return share > 0 and self.random.random() < share

    async def pause(self, seconds: float) -> None:
        """Wait for a time of a library's."""
        await asyncio.sleep(seconds / self.haste)


class NodeList:
    """What the producers of one process have in their list of nodes; here each entry is the same node.

    An entry is left out for a while, but at least half of a list stays in use (S9): one of two, none of one.
    """

    def __init__(self, around: Surroundings, entries: int = 1) -> None:
        self._around = around
        self._out_until = [0.0] * entries

    def leave_out(self, entry: int, seconds: float) -> None:
        """Use an entry no more for so long, unless too few were left."""
        now = self._around.loop.time()
        used = sum(until <= now for until in self._out_until)
        if used > len(self._out_until) // 2 and self._out_until[entry] <= now:
            self._out_until[entry] = now + seconds / self._around.haste

    async def choose(self) -> int:
        """Return an entry that is in use, or the first to be in use again, when it is."""
        earliest = min(self._out_until)
        entry = self._out_until.index(earliest)
        await asyncio.sleep(earliest - self._around.loop.time())
        return entry


class SdkProducer:
    """Sends messages in order, each until it is acknowledged: the caller begins anew where the library gives up."""

    def __init__(
        self,
        habits: ProducerHabits,
        around: Surroundings,
        topic: str,
        messages: Iterable[Message],
        nodes: NodeList | None = None,
    ) -> None:
        self._habits = habits
        self._around = around
        self._topic = topic
        self._messages = messages
        self._nodes = nodes or NodeList(around)
        self._channels: dict[int, Channel] = {}
        self._name = ""
        self._number = 0

    async def run(self) -> None:
        """Send everything."""
        self._take_name()
        for message in self._messages:
            if self._around.chance(self._habits.odd_key_share):
                await self._try(Message(ODD_KEY.decode(), 0), odd=(ODD_KEY, ODD_BYTES))
            while not await self._send(message):
                self._around.account.events["send given up"] += 1
            self._number += 1
        for channel in self._channels.values():
            channel.close()

    async def _send(self, message: Message) -> bool:
        """Send as the library does: a few tries; whether one was acknowledged."""
        for attempt in range(self._habits.retries + 1):
            if attempt:
                self._around.account.events["sent again"] += 1
            if await self._try(message) == 0:
                self._around.account.sent(message)
                return True
        return False

    async def _try(self, message: Message, *, odd: tuple[bytes, bytes] | None = None) -> int | None:
        """Send once; returns the code, or None without one. Waits while the library leaves the node out."""
        habits, around = self._habits, self._around
        entry = await self._nodes.choose()
        channel = await self._connected(entry)
        body = b"\xff%b:%d" % (message.key.encode(), message.number)
        sent: dict[str, Any] = {"topic": self._topic, "key": message.key, "hashId": 0, "partitionId": -1}
        if habits.body_in_value:
            try:
                sent["value"] = body.decode()
            except UnicodeDecodeError:
                sent["value"] = body
        else:
            sent["body"] = body
        if habits.numbered and odd is None:
            sent["uniqKey"] = f"{self._name}{self._number:012X}"
        arguments = {"message": sent, "timeout": habits.send_timeout_ms}
        try:
            reply = await channel.call("sendSync", arguments, seconds=habits.timeout, odd=odd)
        except Gone:
            # Its answer may still come: the library looks for another connection.
            around.account.events["send unanswered"] += 1
            channel.abort()
            del self._channels[entry]
            return None
        return self._taken(entry, reply, odd=odd is not None)

    def _taken(self, entry: int, reply: Reply, *, odd: bool) -> int | None:
        habits, around = self._habits, self._around
        if reply.application is not None:
            around.account.events["send TApplicationException"] += 1
            self._nodes.leave_out(entry, habits.out_after_application)
            return None
        code: int = reply.value["code"]
        if code:
            around.account.events[f"send code {code}{' of an odd key' if odd else ''}"] += 1
            if code == _GAP:
                self._take_name()
            if code not in _KEEPS_NODE:
                self._nodes.leave_out(entry, habits.cool_down)
        return code

    def _take_name(self) -> None:
        """Begin to number under a new name; the first number of a name can be told from it."""
        start = self._around.month_ms & 0xFFFF_FFFF
        self._name = f"FE{self._around.random.getrandbits(40):010X}{start:08X}"
        self._number = start << 16

    async def _connected(self, entry: int) -> Channel:
        while entry not in self._channels:
            address = self._around.producer()
            channel = Channel(self._around.loop, compact=self._habits.compact)
            if address is not None and await self._around.connect(channel, address):
                self._channels[entry] = channel
            else:
                await asyncio.sleep(0.05)
        return self._channels[entry]
