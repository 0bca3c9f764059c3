"""Changes that the broker makes in steps of bounded work."""

from __future__ import annotations

from collections.abc import Awaitable, Iterable
from typing import Annotated, TypeVar

import msgspec

from broker.errors import MessageRefused
from broker.log.durability import AwaitedSteps, all_durable, saved
from broker.query import QueryRefused
from broker.runtime.async_steps import run_async
from broker.scheduled.cancelling import CancelEffect
from broker.store import Store
from proxy.access.rules import EVERYTHING
from proxy.node.opened import Opened
from proxy.operate.changes.desk import ChangeRefused, others_first
from proxy.operate.lookups.waiting_in_kafka import NamedInKafka, WaitingInKafka
from upstream.progress.progress import Progress

Name = Annotated[str, msgspec.Meta(min_length=1, max_length=2_048)]
Result = TypeVar("Result")

CANCELS_MAX = 1_000
"""Messages of one request; each takes a search of the index."""
OUTCOMES = {
    CancelEffect.CANCELLED: "cancelled",
    CancelEffect.TOO_LATE: "tooLate",
    CancelEffect.UNKNOWN: "unknown",
}


class MessageName(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """A message that waits: its id (UNIQ_KEY, or a handle), and the topic where that alone is not clear."""

    id: Name
    topic: str | None = None


def topics_of(names: Iterable[MessageName]) -> tuple[str, ...]:
    """Return the topics of messages; of one that names none everything, for it may be of any."""
    return tuple(dict.fromkeys(name.topic or EVERYTHING for name in names))


def named_in_kafka(waiting: WaitingInKafka, name: str, topic: str | None) -> NamedInKafka | None:
    """Return which message on Kafka is named; None: it is the store's. Raises ChangeRefused (400)."""
    try:
        return waiting.named(name, topic)
    except QueryRefused as refusal:
        raise ChangeRefused(400, f"{name}: {refusal}.") from refusal


async def by_owner(change: Awaitable[Result]) -> Result:
    """Wait for what the owner of a partition in Kafka does, and let other changes go first: it may be gone."""
    async with others_first():
        return await change


async def run_steps(steps: AwaitedSteps[Result]) -> Result:
    """Make a change in steps, between which the node does everything else.

    Raises:
        ChangeRefused: The store refuses it (409), or cannot be read (503).
    """
    try:
        return await run_async(steps)
    except MessageRefused as refusal:
        raise ChangeRefused(409, f"{refusal}.") from refusal
    except OSError as error:
        raise ChangeRefused(503, f"The store cannot be read: {error.strerror or error}.") from error


async def durable(opened: Opened) -> None:
    """Wait until all that was changed is durable, log and ack journal, while the node does everything else.

    For changes whose effects may show before that, as those of clients do; the others call `NodeTurns.make_durable`.

    Raises:
        StoreError: It could not be written; it may be undone by a restart.
    """
    await run_steps(_durable(opened.store, opened.progress))


def _durable(store: Store, progress: Progress) -> AwaitedSteps[None]:
    yield from all_durable(store.writes)
    if store.failed is not None:
        raise store.failed
    yield from saved(store.writes, progress.syncing())
