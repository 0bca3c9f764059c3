"""How `Store.put` makes a message wait: by the feature that was given for it."""

from __future__ import annotations

from typing import TypeVar

from broker.errors import MessageRefused
from broker.feature import Home, OpenedFeatures, WaitingPuts
from broker.format.wait_properties import Wait
from broker.log.put import Put
from broker.runtime.bundle import Runtime

W = TypeVar("W", bound=WaitingPuts)


class StoreWaits:
    """What makes the messages of one store wait, of all features that it is opened with."""

    def __init__(self, owner: Home, given: OpenedFeatures, runtime: Runtime) -> None:
        makers = [feature.make_waiting for feature in given.features if feature.make_waiting is not None]
        self._ways = [make(owner, runtime) for make in makers]

    def of(self, kind: type[W]) -> W:
        """Return what makes messages of this store wait in one way, by its class, as `DelayedPuts`.

        Raises:
            LookupError: The store was opened without the feature that makes it.
        """
        for way in self._ways:
            if isinstance(way, kind):
                return way
        raise LookupError(f"the store was opened without the feature of {kind.__name__}; pass it in `features`")

    def put(self, put: Put, *, level: int, deliver_at_ms: int, delay_ms: int) -> Put:
        """Return what to append: the level wins over the moment, and that over the delay (reference: HookUtils).

        Raises:
            MessageRefused: It cannot wait so, or the store was opened without the feature for it.
            DiskFull, StoreFailed: The topic in which it is to wait is missing and cannot be made.
        """
        if level:
            wait = Wait(level=level)
        elif deliver_at_ms:
            wait = Wait(deliver_at_ms=deliver_at_ms)
        elif delay_ms:
            wait = Wait(delay_ms=delay_ms)
        else:
            return put
        for way in self._ways:
            made = way.waiting(put, wait)
            if made is not None:
                return made
        raise MessageRefused("the store was opened without the feature that delays this message")
