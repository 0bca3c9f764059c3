"""What a change that is made in steps waits for: that something is durable, without the loop waiting for the disk.

Such a change is a generator. It yields None between two steps of bounded work, and an `Awaited` where the next step
makes sense only once that was told; whoever drives it lets the loop do other things meanwhile. In a store that makes no
syncs in the background all is made at once, and nothing is yielded but None.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, TypeVar

from broker.errors import StoreError

if TYPE_CHECKING:
    from broker.store import Store

Result = TypeVar("Result")


class Awaited:
    """Something that a store is about to tell.

    Attributes:
        is_told: It was.
    """

    def __init__(self, store: Store) -> None:
        self.is_told = False
        self._store = store
        self._error: StoreError | None = None
        self._then: Callable[[], object] | None = None

    def tell(self, error: StoreError | None) -> None:
        """Take what the store tells: a `done` of its appends."""
        self.is_told, self._error = True, error
        if self._then is not None:
            self._then()

    def then(self, callback: Callable[[], object]) -> None:
        """Have a callback called when it is told; at once when it was."""
        if self.is_told:
            callback()
        else:
            self._then = callback

    def now(self) -> None:
        """Have the store tell it at once."""
        self._store.flush()

    def steps(self) -> AwaitedSteps[None]:
        """Wait for it. Raises what was told."""
        if self._store.syncs is None:
            self.now()
        while not self.is_told:
            yield self
        if self._error is not None:
            raise self._error


AwaitedSteps = Generator[Awaited | None, None, Result]


def settled(store: Store) -> AwaitedSteps[None]:
    """Wait until what is staged, or on its way to the disk, is durable and was told. Raises StoreFailed: it is not."""
    if store.unsettled:
        awaited = Awaited(store)
        store.tell_settled(awaited.tell)
        yield from awaited.steps()


def run_now(steps: AwaitedSteps[Result]) -> Result:
    """Run a change to its end; the calling thread waits for the disk."""
    while True:
        try:
            awaited = next(steps)
        except StopIteration as end:
            result: Result = end.value
            return result
        if awaited is not None:
            awaited.now()
