"""Appending what waited and is due: whole runs at once, one by one where something is refused.

Shared by whatever waits in the store: it reads and releases each message, and says what became of it to its `Waiter`.

Each message of a call of `deliver` has one result, reported once: `done`, when the store has it durably; `refuse`;
`lose`; `wait` or `give_back`, in their order, from the first that was not taken; or `release` said that it needs
nothing.

Appends are what a delivery costs, and a run of messages needs one. A run ends where an append has to: the store takes
all of it or nothing, its hosts are equally long, and puts that belong together are one alone. When a run is refused
the error does not name the message, so it is appended again one by one; that is rare, as a refusing topic is found by
`release` before. A step counts as one until its last run is durable: waiters bound what is in flight by steps, since
the log is synced by what was staged together and not by the message.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Generic, NamedTuple, Protocol, TypeVar

from broker.errors import DamagedRecord, MessageRefused, RecordGone, StoreError
from broker.log.put import Put
from broker.scheduled.release_plain import Origin, Plain
from broker.store import Store

M = TypeVar("M")


class Due(NamedTuple):
    """What takes the place of a message that waited: its put, or several that are stored together or not at all."""

    puts: tuple[Put, ...]
    born_ms: int
    born_host: bytes


class Waiter(Protocol[M]):
    """Where messages wait."""

    def release_plain(self, messages: list[M]) -> Plain:
        """Make what to append for those that need no second look; `release` gets the others."""

    def release(self, message: M) -> Due | None:
        """Make what to append; None when it needs nothing any more.

        Raises:
            MessageRefused: It cannot be delivered now.
            DamagedRecord, RecordGone: It never can.
        """

    def refuse(self, message: M, reason: str) -> None:
        """Keep it apart, as refused."""

    def lose(self, message: M, error: StoreError) -> None:
        """Give it up."""

    def wait(self, messages: Sequence[M], error: StoreError) -> None:
        """Take these back: the store takes nothing now."""

    def give_back(self, messages: Sequence[M]) -> None:
        """Take these back: others made the step long enough."""

    def done(self, messages: list[M], error: StoreError | None) -> None:
        """They are stored, or the store has failed."""


class ScheduledDelivery(Generic[M]):
    """Appends the messages of one waiter.

    Attributes:
        in_flight: Messages whose delivery is not durable yet.
        steps: Calls of `deliver` with such messages.
        appended: Puts of all deliveries.

    Args:
        store: The store.
        waiter: Where they wait.
        appending: Entered around each append.
    """

    def __init__(
        self,
        store: Store,
        waiter: Waiter[M],
        *,
        appending: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:
        self.in_flight = self.steps = self.appended = 0
        self._runs: list[None] = []
        """One for each run of the present call of `deliver` that is in flight."""
        self._appending = appending
        self._store = store
        self._waiter = waiter

    def deliver(self, messages: list[M], *, together_max: int) -> bool:
        """Append messages in their order; False when the store takes nothing now: the waiter has the rest back.

        Args:
            messages: What is due.
            together_max: Once so many puts are those of messages that have several, the rest is given back.
        """
        waiter = self._waiter
        self._runs = []
        plain = waiter.release_plain(messages)
        if not plain.others:
            left = self._append(messages, plain.puts, plain.origins) if messages else None
            if left is not None:
                waiter.wait(*left)
            return left is None
        run: list[M] = []
        puts: list[Put] = []
        origins: list[Origin] = []
        rest: Sequence[M] = ()
        made, others = zip(plain.puts, plain.origins, strict=True), set(plain.others)
        for place, message in enumerate(messages):
            own: Sequence[Put]
            if place not in others:
                put, origin = next(made)
                own = (put,)
            else:
                try:
                    due = waiter.release(message)
                except (DamagedRecord, RecordGone) as error:
                    waiter.lose(message, error)
                    continue
                except MessageRefused as error:
                    waiter.refuse(message, str(error))
                    continue
                if due is None:
                    continue
                own, origin = due.puts, (due.born_ms, due.born_host)
            # Hosts of one append are equally long, and what belongs together is an append of its own.
            alone = len(own) > 1
            if run and (alone or len(puts) > len(run) or len(origins[0][1]) != len(origin[1])):
                left = self._append(run, puts, origins)
                if left is not None:
                    waiter.wait([*left[0], *messages[place:]], left[1])
                    return False
                run, puts, origins = [], [], []
            run.append(message)
            puts.extend(own)
            origins.append(origin)
            if alone:
                together_max -= len(own)
                if together_max <= 0:
                    rest = messages[place + 1 :]
                    break
        left = self._append(run, puts, origins) if run else None
        if left is not None:
            waiter.wait([*left[0], *rest], left[1])
        elif rest:
            waiter.give_back(rest)
        return left is None

    def _append(self, messages: list[M], puts: list[Put], origins: list[Origin]) -> tuple[list[M], StoreError] | None:
        """Append a run; return what was left of it and why, when the store takes nothing now.

        Args:
            messages: What is due.
            puts: What takes the place of each, or several puts for a single one.
            origins: When and where each was made.
        """
        born_ms, born_host = origins[0]
        count, runs = len(messages), self._runs
        try:
            with self._appending():
                self._store.append(
                    puts,
                    born_ms=born_ms,
                    born_host=born_host,
                    done=partial(self._done, messages, runs),
                    atomic=len(puts) > count,
                    origins=origins if count > 1 else None,
                )
        except MessageRefused as error:
            if count == 1:
                self._waiter.refuse(messages[0], str(error))
                return None
            for place in range(count):
                left = self._append([messages[place]], [puts[place]], [origins[place]])
                if left is not None:
                    return messages[place:], left[1]
            return None
        except StoreError as error:
            return messages, error
        self.in_flight += count
        self.steps += not runs
        runs.append(None)
        self.appended += len(puts)
        return None

    def _done(self, messages: list[M], runs: list[None], error: StoreError | None) -> None:
        self.in_flight -= len(messages)
        runs.pop()
        self.steps -= not runs
        self._waiter.done(messages, error)
