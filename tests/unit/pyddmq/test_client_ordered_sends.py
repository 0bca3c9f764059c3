"""Sends under way together, against a node that refuses, forgets, loses connections and hears late what was lost."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Mapping, Sequence
from random import Random
from typing import Any

import pytest

from pyddmq import CannotConnect, ClientError, ConnectionLost, IllegalMessage, idl
from pyddmq.client.aio.async_producer import LoopSends
from pyddmq.client.ordered_sends import Send
from pyddmq.client.requests import NodeRequest
from pyddmq.client.sends import Resending

WIRE: Any = idl.load("producer")
IN_FLIGHT = 8
NAME_DIGITS = 20


class Keeper:
    """What a node does with numbered messages (docs/deduplication.md), with troubles by chance.

    Attributes:
        stored: Bodies in the order of the log.
        names: Names of producers that stored something.
    """

    def __init__(self, random: Random, *, troubles: float) -> None:
        self.stored: list[bytes] = []
        self.late: deque[Any] = deque()
        self.random = random
        self.troubles = troubles
        self.most_under_way = 0
        self.names: set[str] = set()
        self._next: dict[str, int] = {}
        self._forgotten: set[str] = set()

    def happens(self, share: float = 1.0) -> bool:
        """Whether a trouble happens now."""
        return self.random.random() < self.troubles * share

    def take(self, message: Any) -> Any:
        """Answer a message, perhaps after one that comes late."""
        if self.late and self.random.random() < 0.5:
            self._take(self.late.popleft())
        if self.happens(0.1):
            self._forgotten |= self._next.keys()
            self._next.clear()
        return self._take(message)

    def hear_the_rest(self) -> None:
        """Take all that comes late."""
        while self.late:
            self._take(self.late.popleft())

    def _take(self, message: Any) -> Any:
        name, number = message.uniqKey[:NAME_DIGITS], int(message.uniqKey[NAME_DIGITS:], 16)
        first = int(name[-8:], 16) << 16
        following = self._next.get(name, first if name not in self._forgotten else -1)
        if number < following:
            return WIRE.Result(code=0, msgId=message.uniqKey, repeat=1)
        if number > following:
            return WIRE.Result(code=48, repeat=3)
        if message.body.startswith(b"bad"):
            return WIRE.Result(code=11)
        if self.happens():
            code = self.random.choice([10, 12, 15, 20])
            if code in (10, 12) and self.random.random() < 0.5:
                self._store(name, number, message)
            return WIRE.Result(code=code)
        self._store(name, number, message)
        return WIRE.Result(code=0, msgId=message.uniqKey)

    def _store(self, name: str, number: int, message: Any) -> None:
        self._next[name] = number + 1
        self.names.add(name)
        self.stored.append(message.body)


class Link:
    """In the place of a connection: the node hears calls at once, when their answer is waited for, late, or never."""

    address = "node:1"

    def __init__(self, keeper: Keeper) -> None:
        self._keeper = keeper
        self._unheard: deque[Any] = deque()
        self._answers: deque[Any] = deque()
        self.is_open = False
        self.stream = self

    def has_ended(self) -> bool:
        """Nothing that `is_open` does not know."""
        return False

    async def open(self, *, timeout_ms: int) -> None:
        """Connect."""
        await asyncio.sleep(0)
        if not self.is_open and self._keeper.happens():
            raise CannotConnect(self.address, "nobody there")
        self.is_open = True

    def time(self) -> float:
        """Seconds on the loop's clock."""
        return asyncio.get_running_loop().time()

    def write(self, method: str, arguments: Mapping[str, Any], timeout_ms: int) -> int:
        """Send a call."""
        # As it is now: it may get another number later, and an attempt does not change with it.
        sent = arguments["message"]
        self._unheard.append(WIRE.Message(topic=sent.topic, body=sent.body, uniqKey=sent.uniqKey))
        under_way = len(self._unheard) + len(self._answers)
        self._keeper.most_under_way = max(self._keeper.most_under_way, under_way)
        if self._keeper.random.random() < 0.3:
            while self._unheard:
                self._hear()
        return under_way

    def _hear(self) -> None:
        self._answers.append(self._keeper.take(self._unheard.popleft()))

    async def answer(self, method: str, sequence: int, deadline: float, timeout_ms: int) -> Any:
        """Wait for the oldest answer."""
        await asyncio.sleep(0)
        if self._keeper.happens(0.3):
            self._lose()
            raise ConnectionLost(self.address, method, "cut")
        if not self._answers:
            self._hear()
        return self._answers.popleft()

    def _lose(self) -> None:
        late = list(self._unheard)[: self._keeper.random.randint(0, len(self._unheard))]
        self._keeper.late.extend(late)
        self._unheard.clear()
        self._answers.clear()
        self.is_open = False

    def close(self) -> None:
        """Close."""
        self._lose()

    async def end(self) -> None:
        """Close."""
        self._lose()


async def send_all(keeper: Keeper, bodies: list[bytes], *, resends: int, in_flight_max: int = IN_FLIGHT) -> list[Any]:
    """Send bodies, and return for each None, or why it failed."""
    link: Any = Link(keeper)
    resending = Resending(resends=resends, pause_ms=0, patience_ms=0, on_resend=None)
    sends = LoopSends(link, resending, in_flight_max=in_flight_max, deduplicate=True)
    loop = asyncio.get_running_loop()
    futures: list[asyncio.Future[Any]] = []
    for number, body in enumerate(bodies):
        future: asyncio.Future[Any] = loop.create_future()
        message = WIRE.Message(topic="t", body=body)

        def done(_result: Any, _attempts: int, error: BaseException | None, future: Any = future) -> None:
            future.set_result(error)

        request = NodeRequest("sendSync", {"message": message}, 1000, [message], lambda result, _: result)
        sends.submit(Send(request, done))
        futures.append(future)
        if number % 3 == 0:
            await asyncio.sleep(0)
    outcomes = [await asyncio.wait_for(future, 60) for future in futures]
    await sends.close()
    keeper.hear_the_rest()
    return outcomes


@pytest.mark.parametrize("seeds", [*(range(n, n + 100) for n in range(0, 800, 100)), (957, 2123)])
def test_every_outcome_is_true_and_order_holds_whatever_happens(seeds: Sequence[int]) -> None:
    """What was told as stored is there once and in order; what surely failed is not there, not even late."""
    counts = {"stored": 0, "refused": 0, "undecided": 0}
    for seed in seeds:
        random = Random(seed)
        keeper = Keeper(random, troubles=random.choice([0.0, 0.02, 0.1, 0.3]))
        bodies = [b"bad-%d" % n if random.random() < 0.05 else b"%d" % n for n in range(40)]
        outcomes = asyncio.run(send_all(keeper, bodies, resends=random.choice([0, 1, 5])))
        assert len(keeper.stored) == len(set(keeper.stored)), f"seed {seed}: stored twice"
        reported = {body for body, error in zip(bodies, outcomes, strict=True) if error is None}
        for body, error in zip(bodies, outcomes, strict=True):
            assert error is None or isinstance(error, ClientError), f"seed {seed}: {error!r}"
            if error is not None and not error.undecided:
                assert body not in keeper.stored, f"seed {seed}: {body!r} failed for sure ({error}) and is stored"
            counts["stored" if error is None else "undecided" if error.undecided else "refused"] += 1
        assert reported <= set(keeper.stored), f"seed {seed}: told and not stored"
        kept = [body for body in keeper.stored if body in reported]
        assert kept == [body for body in bodies if body in reported], f"seed {seed}: out of order"
    assert min(counts.values()) > len(seeds) // 2, counts


def test_sends_are_under_way_together_once_the_node_knows_numbers() -> None:
    """Up to the bound, and one at a time before the first answer has shown it."""
    keeper = Keeper(Random(1), troubles=0)
    assert asyncio.run(send_all(keeper, [b"%d" % n for n in range(50)], resends=0)) == [None] * 50
    assert keeper.most_under_way == IN_FLIGHT


def test_refused_message_costs_no_other_one_its_place() -> None:
    """Those behind it are numbered anew and stored, in order, under the same name."""
    keeper = Keeper(Random(1), troubles=0)
    bodies = [b"1", b"2", b"3", b"bad", b"4", b"5", b"bad too", b"6"]
    outcomes = asyncio.run(send_all(keeper, bodies, resends=0))
    assert [type(error) for error in outcomes if error is not None] == [IllegalMessage, IllegalMessage]
    assert keeper.stored == [b"1", b"2", b"3", b"4", b"5", b"6"]
    assert len(keeper.names) == 1
