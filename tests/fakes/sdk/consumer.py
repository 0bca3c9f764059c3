"""An imitated consumer: one thread of a library, with one connection at a time."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

from tests.fakes.codec import Reply
from tests.fakes.sdk.account import Message, Place
from tests.fakes.sdk.channel import Channel, Gone
from tests.fakes.sdk.habits import ConsumerHabits
from tests.fakes.sdk.producer import Surroundings

STALL_SECONDS = 1.0
"""How long a reader that stalls reads nothing."""

_Results = dict[Place, bool]
"""Whether a message succeeded; the others failed."""


class SdkConsumer:
    """Pulls for one group until it is stopped; results ride on the next pull, as the library does it.

    Attributes:
        stopped: Set: it ends after the batch in hand, which it answers.
    """

    def __init__(self, habits: ConsumerHabits, around: Surroundings, group: str) -> None:
        self.stopped = False
        self._habits = habits
        self._around = around
        self._group = group
        self._results: _Results = {}

    def calm(self) -> None:
        """From now on nothing but success: the end of a run, in which everything gets finished."""
        self._habits = replace(
            self._habits, close_share=0.0, drop_share=0.0, stall_share=0.0, skip_share=0.0, fail_share=0.0
        )

    async def run(self) -> None:
        """Pull, connection after connection."""
        while not self.stopped or self._results:
            address = self._around.consumer()
            channel = Channel(self._around.loop, compact=self._habits.compact)
            if address is None or not await self._around.connect(channel, address):
                await asyncio.sleep(0.05)
                continue
            try:
                while not self.stopped or self._results:
                    await self._turn(channel)
            except Gone:
                channel.abort()
                self._around.account.events["pull unanswered"] += 1
                for place, success in self._results.items():
                    self._around.account.completed(place, "unanswered" if success else "failed")
                if not self.stopped:
                    await self._around.pause(self._habits.reconnect)
            else:
                channel.close()

    async def _turn(self, channel: Channel) -> None:
        """One pull with all results, and the work on what it brought. Raises Gone: another connection is needed."""
        habits, around = self._habits, self._around
        asked = around.account.mark()
        request: dict[str, Any] = {
            "groupId": self._group,
            "maxBatchSize": habits.batch,
            "maxLingerTime": habits.linger_ms,
            "result": self._chain(),
        }
        stall = STALL_SECONDS if around.chance(habits.stall_share) else 0.0
        around.account.events["stalled"] += bool(stall)
        reply = await channel.call("pull", {"request": request}, seconds=habits.timeout, stall=stall)
        if reply.application is not None:
            around.account.events["pull TApplicationException"] += 1
            self._refused()
            await around.pause(habits.out_after_application or habits.retry)
            raise Gone
        if reply.error is not None:
            around.account.events[f"pull code {reply.error[1]['code']}"] += 1
            self._refused()
            await around.pause(habits.retry)
            return
        self._taken()
        await self._work(channel, reply, asked)

    def _refused(self) -> None:
        """Deal with an exception: the same results go with the next pull, unless the library throws them away."""
        if self._habits.throws_away:
            for place, success in self._results.items():
                self._around.account.completed(place, "thrown away" if success else "failed")
            self._results = {}

    def _taken(self) -> None:
        for place, success in self._results.items():
            if success:
                self._around.account.answered(place)
            else:
                self._around.account.completed(place, "failed")
        self._results = {}

    async def _work(self, channel: Channel, reply: Reply, asked: int) -> None:
        habits, around = self._habits, self._around
        value = reply.value
        if not value["messages"]:
            await around.pause(habits.retry)
            return
        context = value["context"]
        for message in value["messages"]:
            place = Place(context["topic"], context["qid"], message["offset"])
            key, _, number = message["value"].removeprefix(b"\xff").decode().rpartition(":")
            around.account.delivered(place, Message(key, int(number)), asked)
            if around.chance(habits.skip_share):
                around.account.completed(place, "skipped")
            else:
                self._results[place] = not around.chance(habits.fail_share)
        await asyncio.sleep(0)
        if around.chance(habits.drop_share):
            # A pool that interrupts its threads: they take what they have with them.
            around.account.events["dropped"] += 1
            self._forget("in hand")
            raise Gone
        if around.chance(habits.close_share):
            around.account.events["closed without reading"] += 1
            channel.send("submit", {"result": self._chain()})
            self._forget("unanswered")
            channel.close()
            raise Gone

    def _forget(self, fate: str) -> None:
        for place in self._results:
            self._around.account.completed(place, fate)
        self._results = {}

    def _chain(self) -> dict[str, Any] | None:
        """Return the results as a chain, an element for each queue."""
        queues: dict[tuple[str, str], tuple[list[int], list[int]]] = {}
        for place, success in self._results.items():
            lists = queues.setdefault((place.topic, place.qid), ([], []))
            lists[0 if success else 1].append(place.offset)
        chain: dict[str, Any] | None = None
        for (topic, qid), (good, bad) in queues.items():
            context = {"groupId": self._group, "topic": topic, "qid": qid}
            chain = {"context": context, "successOffsets": good, "failOffsets": bad, "nextResult": chain}
        return chain
