"""Appending what waited and is due: whole runs at once, one by one where something is refused.

Shared by whatever waits in the store: it reads and releases each message, and says what became of it to its `Waiter`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Generic, NamedTuple, Protocol, TypeVar

from broker.errors import DamagedRecord, MessageRefused, RecordGone, StoreError
from broker.put import Put
from broker.store import Store

M = TypeVar("M")
M_contra = TypeVar("M_contra", contravariant=True)


class Due(NamedTuple):
    """What takes the place of a message that waited: its put, or several that are stored together or not at all."""

    puts: tuple[Put, ...]
    born_ms: int
    born_host: bytes


class Waiter(Protocol[M_contra]):
    """Where messages wait."""

    def release_plain(self, messages: Sequence[M_contra]) -> Sequence[Due | None]:
        """Make what to append for those that need no second look, None for the others, which `release` gets."""
        ...

    def release(self, message: M_contra) -> Due | None:
        """Make what to append; None when it needs nothing any more.

        Raises:
            MessageRefused: It cannot be delivered now.
            DamagedRecord, RecordGone: It never can.
        """
        ...

    def refuse(self, message: M_contra, reason: str) -> None:
        """Set it aside."""
        ...

    def lose(self, message: M_contra, error: StoreError) -> None:
        """Give it up."""
        ...

    def wait(self, messages: Sequence[M_contra], error: StoreError) -> None:
        """Take these back: the store takes nothing now."""
        ...

    def give_back(self, messages: Sequence[M_contra]) -> None:
        """Take these back: others made the step long enough."""
        ...

    def done(self, messages: Sequence[M_contra], error: StoreError | None) -> None:
        """They are stored, or the store has failed."""
        ...


class Delivery(Generic[M]):
    """Appends the messages of one waiter.

    Attributes:
        in_flight: Messages whose delivery is not durable yet.
        steps: Calls of `deliver` with such messages.
        appended: Puts of all deliveries.
        appending: Entered around each append.
    """

    def __init__(self, store: Store, waiter: Waiter[M]) -> None:
        self.in_flight = self.steps = self.appended = 0
        self._runs: list[None] = []
        """One for each run of the present call of `deliver` that is in flight."""
        self.appending: Callable[[], AbstractContextManager[None]] = nullcontext
        self._store = store
        self._waiter = waiter

    def deliver(self, messages: Sequence[M], *, together_max: int) -> bool:
        """Append messages in their order; False when the store takes nothing now: the waiter has the rest back.

        Args:
            messages: What is due.
            together_max: Once so many puts are those of messages that have several, the rest is given back.
        """
        waiter = self._waiter
        self._runs = []
        run: list[tuple[M, Due]] = []
        rest: Sequence[M] = ()
        plain = waiter.release_plain(messages)
        for place, (message, made) in enumerate(zip(messages, plain, strict=True)):
            due = made
            if due is None:
                try:
                    due = waiter.release(message)
                except (DamagedRecord, RecordGone) as error:
                    waiter.lose(message, error)
                except MessageRefused as error:
                    waiter.refuse(message, str(error))
            if due is None:
                continue
            # Hosts of one append are equally long, and what belongs together is an append of its own.
            alone = len(due.puts) > 1
            if run and (alone or len(run[0][1].puts) > 1 or len(run[0][1].born_host) != len(due.born_host)):
                left = self._append(run)
                if left is not None:
                    waiter.wait([*left[0], *messages[place:]], left[1])
                    return False
                run = []
            run.append((message, due))
            if alone:
                together_max -= len(due.puts)
                if together_max <= 0:
                    rest = messages[place + 1 :]
                    break
        left = self._append(run) if run else None
        if left is not None:
            waiter.wait([*left[0], *rest], left[1])
        elif rest:
            waiter.give_back(rest)
        return left is None

    def _append(self, run: Sequence[tuple[M, Due]]) -> tuple[list[M], StoreError] | None:
        """Append a run; return what was left of it and why, when the store takes nothing now."""
        first = run[0][1]
        messages = [message for message, _ in run]
        together = len(first.puts) > 1
        runs = self._runs
        try:
            with self.appending():
                self._store.append(
                    first.puts if together else [due.puts[0] for _, due in run],
                    born_ms=first.born_ms,
                    born_host=first.born_host,
                    done=partial(self._done, messages, runs),
                    atomic=together,
                    origins=[(due.born_ms, due.born_host) for _, due in run] if len(run) > 1 else None,
                )
        except MessageRefused as error:
            if len(run) == 1:
                self._waiter.refuse(messages[0], str(error))
                return None
            for place, each in enumerate(run):
                left = self._append([each])
                if left is not None:
                    return messages[place:], left[1]
            return None
        except StoreError as error:
            return messages, error
        self.in_flight += len(run)
        self.steps += not runs
        runs.append(None)
        self.appended += len(first.puts) if together else len(run)
        return None

    def _done(self, messages: Sequence[M], runs: list[None], error: StoreError | None) -> None:
        self.in_flight -= len(messages)
        runs.pop()
        self.steps -= not runs
        self._waiter.done(messages, error)
