"""What a sink is given, without a node: jobs that remember their answers, a context that counts, a disk, a clock."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, ClassVar, TypeVar

from actions.client_factories import Outside, OutsideAction
from actions.sinks.local_state import Keep
from pyddmq.actions import Message, Outgoing, Status

T = TypeVar("T")


class FakeContext:
    """A `pyddmq.actions.Context`; its clock is the event loop's, so that virtual time moves it."""

    group, topic, timeout_ms = "g", "orders", 5_000
    tps_max = None

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.notes: list[tuple[str, dict[str, object]]] = []
        self.ahead = 0.0

    def wall_ms(self) -> int:
        return 1_700_000_000_000 + round(self.monotonic() * 1000)

    def monotonic(self) -> float:
        try:
            return asyncio.get_running_loop().time() + self.ahead
        except RuntimeError:
            return self.ahead

    def count(self, event: str, amount: int = 1) -> None:
        self.counts[event] += amount

    def note(self, event: str, **facts: object) -> None:
        self.notes.append((event, facts))


class FakeJob:
    """A `pyddmq.actions.Job` of queue q0 that remembers what it was answered."""

    def __init__(
        self,
        offset: int,
        body: bytes = b"{}",
        *,
        key: str | None = None,
        tag: str | None = None,
        qid: str = "q0",
        stored_ms: int | None = None,
        properties: Mapping[str, str] | None = None,
    ) -> None:
        self.group, self.topic, self.qid, self.offset = "g", "orders", qid, offset
        stored = 1_700_000_000_000 + offset if stored_ms is None else stored_ms
        self.message = Message(key, tag, body, properties or {}, stored, stored)
        self.data: Any = body
        self.outgoing = Outgoing()
        self.attempts = 0
        self.history = None
        self.answers: list[Status | Exception] = []

    @property
    def body(self) -> memoryview:
        return memoryview(self.message.body)

    @property
    def answered(self) -> Status | Exception | None:
        """The answer that counts."""
        return self.answers[0] if self.answers else None

    def answer(self, answer: Status | Exception) -> bool:
        self.answers.append(answer)
        return len(self.answers) == 1

    def resume(self) -> None:
        self.answer(Status.CONTINUE)

    def finish(self, success: bool, reason: str = "") -> bool:
        return self.answer(Status.FINISH if success else Status.FAIL)


class SeenJob(FakeJob):
    """A message that is noted when its body is looked at."""

    seen: ClassVar[set[int]] = set()

    @property
    def data(self) -> Any:
        """The body."""
        self.seen.add(self.offset)
        return self.message.body

    @data.setter
    def data(self, _body: Any) -> None:
        pass


async def bodies_by_turn(work: Awaitable[T]) -> tuple[T, list[int]]:
    """Do some work; return its result, and of how many `SeenJob`s it saw the body in each turn of the loop."""
    seen, found = SeenJob.seen, [0]
    seen.clear()

    async def others() -> None:
        while True:
            found.append(len(seen))
            seen.clear()
            await asyncio.sleep(0)

    beside = asyncio.create_task(others())
    result = await work
    beside.cancel()
    return result, found


class InlineKeep(Keep):
    """A `Keep` on any disk; what blocks is done at once, in the loop's thread."""

    def __init__(self, disk: Any, data: str) -> None:
        class Threads:
            def run(self, work: Callable[[], object], done: Callable[[object], None]) -> None:
                asyncio.get_running_loop().call_soon(done, work())

        class Tasks:
            def create_future(self) -> asyncio.Future[Any]:
                return asyncio.get_running_loop().create_future()

        super().__init__(disk, data, threads=Threads(), tasks=Tasks())  # type: ignore[arg-type]


def opened(cls: type[OutsideAction], options: dict[str, Any], outside: Outside, name: str = "Sink") -> Any:
    """Make an action with checked options and open it."""
    action = cls()
    action.name = name
    action.outside = outside
    action.context = FakeContext()
    assert cls.options_model is not None
    action.options = cls.options_model.model_validate(options)
    action.open()
    return action
