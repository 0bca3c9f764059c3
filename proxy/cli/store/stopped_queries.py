"""What the admin port would answer of delays, timers, transactions and dead letters, of a store that is not in use."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeVar

from msgspec import UNSET
from msgspec.structs import replace

from broker.runtime.steps import run_now
from broker.views import TransactionView, View
from proxy.cli.admin_client import TIMEOUT_SECONDS, get, given
from proxy.cli.store.stopped_store import StoppedStore, opened
from proxy.cli.store.store_files import query_errors

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop

    from broker.log.shared_walk import Reading
    from broker.retry.redrive import Redrives
    from broker.scheduled.delay.delays import Delays
    from broker.scheduled.timer.timers import Timers
    from broker.transaction.transactions import Transactions
    from proxy.operate.views.waiting import TimersAnswer

_TURNS_MAX = 10_000
"""Turns of the loop in which nothing enters; the rest is counted as `entering` then."""

T = TypeVar("T")


class Lookup(Protocol):
    """Answers a path and its parameters."""

    def __call__(self, path: str, parameters: Mapping[str, object], shape: type[T]) -> T:
        """Return the answer, which is of this shape; parameters that are None are left out."""


@contextlib.contextmanager
def queries(admin: str, data: Path | None, *, timeout_seconds: float = TIMEOUT_SECONDS) -> Iterator[Lookup]:
    """Return what answers: the admin port, or a data directory that no node has open, of which not a byte changes.

    Raises:
        CliError: There is no store, a node has it open, or it cannot be read.
    """
    if data is None:

        def lookup_in_node(path: str, parameters: Mapping[str, object], shape: type[T]) -> T:
            return get(admin, path, shape, parameters=parameters, timeout_seconds=timeout_seconds)

        yield lookup_in_node
        return
    with opened(data) as found:
        answers = Answers(found)

        def lookup(path: str, parameters: Mapping[str, object], shape: type[T]) -> T:
            with query_errors():
                answer = answers.by_path[path](given(parameters))
            assert isinstance(answer, shape), path
            return answer

        yield lookup


class Answers:
    """The paths that are answered; timers and redrives are found out when one is asked of them."""

    def __init__(self, found: StoppedStore) -> None:
        self._found = found
        self._delays: Delays | None = None
        self._timers: Timers | None = None
        self._transactions: Transactions | None = None
        self._redrives: Redrives | None = None
        self.by_path: dict[str, Callable[[dict[str, str]], View]] = {
            "/api/delays": self._list_delays,
            "/api/timers": self.timers,
            "/api/timers/show": self._show_timer,
            "/api/transactions": self._list_transactions,
            "/api/dead-letters": self._dead_letters,
        }

    def _read(self, opening: Reading[T]) -> T:
        from broker.log.shared_walk import alone

        return run_now(alone(self._found.store, opening))

    def opened_delays(self) -> Delays:
        """Delays of the store; nothing is delivered."""
        from broker.scheduled.delay.delays import Delays

        if self._delays is None:
            self._delays = self._read(Delays.reading_of(self._found.store, self._found.runtime))
        return self._delays

    def _list_delays(self, given: dict[str, str]) -> View:
        from proxy.operate.lookups import delays

        waiting = self.opened_delays()
        limit, now_ms = int(given.get("limit", "0")), self._found.runtime.clock.wall_ms()
        answer = run_now(delays.search(waiting, given, limit=limit, now_ms=now_ms))
        # The list of delays is in the configuration of a node; due times stand in the store.
        levels = [replace(each, delay_ms=None) for each in answer.levels if waiting.levels]
        return replace(answer, levels=levels)

    def opened_timers(self) -> Timers:
        """Timers of the store, with all that is stored; nothing is delivered."""
        from broker.scheduled.timer.timers import Timers

        if self._timers is None:
            found = self._found
            self._timers = self._read(Timers.reading_of(found.store, found.runtime))
            _enter_all(self._timers, found.loop)
        return self._timers

    def timers(self, given: dict[str, str]) -> TimersAnswer:
        """A page of timers. Raises QueryRefused."""
        from proxy.operate.lookups import timers

        limit, now_ms = int(given.get("limit", "0")), self._found.runtime.clock.wall_ms()
        return run_now(timers.search(self.opened_timers(), given, limit=limit, now_ms=now_ms))

    def _show_timer(self, given: dict[str, str]) -> View:
        from proxy.operate.lookups import timers

        broker_name, now_ms = _broker_name(given.get("id", "")), self._found.runtime.clock.wall_ms()
        return run_now(timers.show(self._found.store, given, broker_name=broker_name, now_ms=now_ms))

    def opened_transactions(self) -> Transactions:
        """Transactions of the store; nothing is checked."""
        from broker.queues.offsets import ConsumerOffsets
        from broker.transaction.transactions import Transactions

        if self._transactions is None:
            found, runtime = self._found, self._found.runtime
            offsets = ConsumerOffsets.open(found.root, disk=runtime.disk, clock=runtime.clock, metrics=runtime.metrics)
            self._transactions = self._read(Transactions.reading_of(found.store, runtime, offsets=offsets))
        return self._transactions

    def _list_transactions(self, given: dict[str, str]) -> View:
        from proxy.operate.lookups.transactions import TransactionQuery, by_place, search

        transactions, now_ms = self.opened_transactions(), self._found.runtime.clock.wall_ms()
        answer = run_now(
            search(transactions, TransactionQuery.of(given, limit=int(given.get("limit", "0"))), now_ms=now_ms)
        )
        # When halves are checked is in the configuration of a node.
        # A node counts them little by little, as it goes through them for checks.
        undecided = Counter((half.topic, half.group) for half in undecided_of(transactions))
        return replace(answer, settings=UNSET, pending=by_place(undecided))

    def _dead_letters(self, given: dict[str, str]) -> View:
        import asyncio

        from broker.retry.redrive import Redrives
        from proxy.operate.lookups import dead_letters

        found = self._found
        if self._redrives is None:
            self._redrives = Redrives(found.store, disk=found.runtime.disk)
        now_ms = found.runtime.clock.wall_ms()
        return asyncio.run(dead_letters.search(found.store, self._redrives, given, now_ms=now_ms))


def undecided_of(transactions: Transactions) -> Iterator[TransactionView]:
    """Yield the halves of a store that are undecided."""
    cursor: int | None = 0
    while cursor is not None:
        page = run_now(transactions.pending(cursor=cursor, count_max=1_000))
        yield from page.found
        cursor = page.cursor


def _enter_all(timers: Timers, loop: AbstractEventLoop) -> None:
    """Have the timers take in what is stored and not in the wheel; nothing is delivered."""
    import asyncio

    from broker.scheduled.timer.stages import TimerPipelineStage

    async def entering() -> None:
        lag, turns = timers.entering.lag, 0
        while lag and turns < _TURNS_MAX:
            await asyncio.sleep(0)
            turns = turns + 1 if timers.entering.lag == lag else 0
            lag = timers.entering.lag

    timers.pause(TimerPipelineStage.DEQUEUE_GET_MESSAGE)
    timers.start()
    loop.run_until_complete(entering())
    timers.stop()
    timers.resume(TimerPipelineStage.DEQUEUE_GET_MESSAGE)


def _broker_name(name: str) -> str:
    """Return the broker of a handle: a data directory does not say whose it is."""
    from broker.scheduled.timer.handle import parse_handle
    from conf import NodeConfig

    handle = parse_handle(name)
    return NodeConfig().broker_name if handle is None else handle.broker_name
