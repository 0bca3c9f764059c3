"""What the admin port would answer of delays, timers, transactions and dead letters, of a store that is not in use."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from proxy.cli.admin_client import TIMEOUT_SECONDS, get
from proxy.cli.store.stopped_store import StoppedStore, opened
from proxy.cli.store.store_files import query_errors

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop

    from broker.retry.redrive import Redrives
    from broker.scheduled.delay.delays import Delays
    from broker.scheduled.timer.timers import Timers
    from broker.store_seams import StoreSeams
    from broker.transaction.transactions import Transactions
    from proxy.admin.timers import TimerSearch, TimerShow

_TURNS_MAX = 10_000
"""Turns of the loop in which nothing enters; the rest is counted as `entering` then."""

Ask = Callable[[str, Mapping[str, str | int]], dict[str, Any]]
"""Answers a path and its parameters with its document."""


@contextlib.contextmanager
def asking(admin: str, data: Path | None, *, timeout_seconds: float = TIMEOUT_SECONDS) -> Iterator[Ask]:
    """Return what answers: the admin port, or a data directory that no node has open, of which not a byte changes.

    Raises:
        CliError: There is no store, a node has it open, or it cannot be read.
    """
    if data is None:
        yield lambda path, asked: get(
            admin, f"{path}?{urlencode(asked)}" if asked else path, timeout_seconds=timeout_seconds
        )
        return
    with opened(data) as found:
        answers = Answers(found)

        def ask(path: str, asked: Mapping[str, str | int]) -> dict[str, Any]:
            with query_errors():
                return answers.by_path[path]({name: str(value) for name, value in asked.items()})

        yield ask


class Answers:
    """The paths that are answered; timers and redrives are found out when one is asked of them."""

    def __init__(self, found: StoppedStore) -> None:
        self._found = found
        self._delays: Delays | None = None
        self._timers: Timers | None = None
        self._transactions: Transactions | None = None
        self._redrives: Redrives | None = None
        self.by_path: dict[str, Callable[[dict[str, str]], dict[str, Any]]] = {
            "/api/delays": self._list_delays,
            "/api/timers": self._list_timers,
            "/api/timers/show": self._show_timer,
            "/api/transactions": self._list_transactions,
            "/api/dead-letters": self._dead_letters,
        }

    def _seams(self) -> StoreSeams:
        from broker.runtime.rate_limited_log import Notices

        found = self._found
        return {
            "disk": found.disk,
            "clock": found.clock,
            "scheduler": found.loop,
            "metrics": found.metrics,
            "notices": Notices(found.clock),
        }

    def opened_delays(self) -> Delays:
        """Delays of the store; nothing is delivered."""
        from broker.opening.opening import run_to_end
        from broker.scheduled.delay.delays import Delays

        if self._delays is None:
            self._delays = run_to_end(Delays.opening(self._found.store, **self._seams()))
        return self._delays

    def _list_delays(self, given: dict[str, str]) -> dict[str, Any]:
        from broker.opening.opening import run_to_end
        from proxy.admin import delays

        waiting = self.opened_delays()
        limit, now_ms = int(given.get("limit", "0")), self._found.clock.wall_ms()
        answer = run_to_end(delays.search(waiting, given, limit=limit, now_ms=now_ms))
        if not waiting.levels:
            answer["levels"] = []
        for each in answer["levels"]:
            # The list of delays stands in the configuration of a node; due times stand in the store.
            each["delayMs"] = None
        return answer

    def opened_timers(self) -> Timers:
        """Timers of the store, with all that is stored; nothing is delivered."""
        from broker.opening.opening import run_to_end
        from broker.scheduled.timer.timers import Timers

        if self._timers is None:
            found = self._found
            self._timers = run_to_end(Timers.opening(found.store, **self._seams()))
            _enter_all(self._timers, found.loop)
        return self._timers

    def _list_timers(self, given: dict[str, str]) -> dict[str, Any]:
        from proxy.admin.timers import TimerSearch

        limit = int(given.get("limit", "0"))
        return _run(TimerSearch(self.opened_timers(), given, limit, self._found.clock.wall_ms()))

    def _show_timer(self, given: dict[str, str]) -> dict[str, Any]:
        from proxy.admin.timers import TimerShow

        found = self._found
        return _run(TimerShow(found.store, given, _broker_name(given.get("id", "")), found.clock.wall_ms()))

    def opened_transactions(self) -> Transactions:
        """Transactions of the store; nothing is checked."""
        from broker.opening.opening import run_to_end
        from broker.queues.offsets import ConsumerOffsets
        from broker.transaction.transactions import Transactions

        if self._transactions is None:
            found = self._found
            offsets = ConsumerOffsets.open(found.root, disk=found.disk, clock=found.clock, metrics=found.metrics)
            self._transactions = run_to_end(Transactions.opening(found.store, offsets=offsets, **self._seams()))
        return self._transactions

    def _list_transactions(self, given: dict[str, str]) -> dict[str, Any]:
        from broker.opening.opening import run_to_end
        from broker.query import NotFound
        from proxy.admin.transactions import Asked, document, one

        transactions, now_ms = self.opened_transactions(), self._found.clock.wall_ms()
        asked = Asked.of(given, limit=int(given.get("limit", "0")))
        answer = run_to_end(document(transactions, asked, now_ms=now_ms))
        # When halves are checked stands in the configuration of a node.
        del answer["settings"]
        answer["pending"] = [
            {"topic": topic, "group": group, "count": count}
            for (topic, group), count in sorted(_undecided(transactions).items())
        ]
        if asked.id is not None:
            for answer["transactions"] in one(transactions, asked.id):
                pass
            if not answer["transactions"]:
                raise NotFound(f"there is no transaction {asked.id!r}, or none any more")
        return answer

    def _dead_letters(self, given: dict[str, str]) -> dict[str, Any]:
        import asyncio

        from broker.retry.redrive import Redrives
        from proxy.admin import dead_letters

        found = self._found
        if self._redrives is None:
            self._redrives = Redrives(found.store, disk=found.disk)
        now_ms = found.clock.wall_ms()
        return asyncio.run(dead_letters.document(found.store, self._redrives, given, now_ms=now_ms))


def _undecided(transactions: Transactions) -> Counter[tuple[str, str]]:
    """Count by topic and producer group; a node does that little by little, as it goes through them for checks."""
    from broker.opening.opening import run_to_end

    counts: Counter[tuple[str, str]] = Counter()
    cursor: int | None = 0
    while cursor is not None:
        page = run_to_end(transactions.pending(cursor=cursor, count_max=1_000))
        counts.update((half.topic, half.group) for half in page.found)
        cursor = page.cursor
    return counts


def _enter_all(timers: Timers, loop: AbstractEventLoop) -> None:
    """Have the timers take in what is stored and not in the wheel; nothing is delivered."""
    import asyncio

    from broker.scheduled.timer.stages import Stage

    async def entering() -> None:
        lag, turns = timers.entering.lag, 0
        while lag and turns < _TURNS_MAX:
            await asyncio.sleep(0)
            turns = turns + 1 if timers.entering.lag == lag else 0
            lag = timers.entering.lag

    timers.pause(Stage.DEQUEUE_GET_MESSAGE)
    timers.start()
    loop.run_until_complete(entering())
    timers.stop()
    timers.resume(Stage.DEQUEUE_GET_MESSAGE)


def _run(search: TimerSearch | TimerShow) -> dict[str, Any]:
    for _ in search.steps():
        pass
    return search.document()


def _broker_name(name: str) -> str:
    """Return the broker of a handle: a data directory does not say whose it is."""
    from broker.scheduled.timer.handle import parse_handle
    from conf import NodeConfig

    handle = parse_handle(name)
    return NodeConfig().broker_name if handle is None else handle.broker_name
