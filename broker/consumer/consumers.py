"""`Consumers`: the place that makes the consumers of one store."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from typing import NotRequired, TypedDict, Unpack

from broker.consumer.broadcasting import NAMES_CHARS_MAX, BroadcastConsumer
from broker.consumer.concurrent import ConcurrentConsumer, ConcurrentListener
from broker.consumer.counters import SAVE_ERRORS
from broker.consumer.options import ConsumerOptions
from broker.consumer.orderly import OrderlyConsumer, OrderlyListener
from broker.consumer.shared import Runner, Shared, run_inline
from broker.errors import MessageRefused
from broker.log.shared_walk import Reading, alone
from broker.queues.message_queue import BROKER_NAME
from broker.queues.offsets import ConsumerOffsets
from broker.queues.topics import GROUP_BYTES_MAX, check_name
from broker.retry.finished import FILE as FINISHED_FILE
from broker.runtime.bundle import runtime_of
from broker.runtime.metrics import Metrics
from broker.runtime.rate_limited_log import RateLimitedLog
from broker.runtime.seams import Clock, Disk, Scheduler
from broker.runtime.steps import run_now
from broker.store import Store


class ConsumerSeams(TypedDict):
    """What a bundle (`broker.runtime.bundle`) is made of for them: `scheduler` is the event loop, or any scheduler."""

    disk: Disk
    clock: Clock
    scheduler: Scheduler
    metrics: Metrics
    limited_log: NotRequired[RateLimitedLog | None]


class ConsumersArguments(ConsumerSeams):
    """Keyword arguments of `Consumers`; the text of `Shared` says what each is for."""

    run: NotRequired[Runner]
    offsets: NotRequired[ConsumerOffsets | None]
    broker_name: NotRequired[str]


class Consumers:
    """All consumers inside the program over one store; used from the loop's thread only.

    Attributes:
        shared: What they share.
    """

    def __init__(
        self,
        store: Store,
        *,
        run: Runner = run_inline,
        offsets: ConsumerOffsets | None = None,
        broker_name: str = BROKER_NAME,
        **seams: Unpack[ConsumerSeams],
    ) -> None:
        """Set up; `opening` is to follow before any consumer starts. Arguments and errors as `Shared`."""
        self.shared = Shared(store, runtime_of(**seams), run=run, offsets=offsets, broker_name=broker_name)

    @classmethod
    def open(cls, store: Store, **given: Unpack[ConsumersArguments]) -> Consumers:
        """Make consumers possible on an open store: `Consumers(...)`, and `opening` in one go.

        Raises:
            StoreUnreadable, OSError: As the two.
        """
        return run_now(cls(store, **given).opening())

    def opening(self) -> Generator[None, None, Consumers]:
        """Find out what was sent back and dead-lettered, in steps of bounded work; returns these consumers.

        Raises:
            OSError: A file cannot be read.
        """
        return alone(self.shared.store, self.reading())

    def reading(self) -> Reading[Consumers]:
        """`opening`, for `broker.log.shared_walk.together`."""
        shared = self.shared
        yield from shared.finished.reading()
        if shared.finished.damaged is not None:
            shared.metrics.counter(SAVE_ERRORS, FINISHED_FILE).add()
            shared.limited_log.note(
                "consumer_finished_unreadable", error=str(shared.finished.damaged), cost="reads the log"
            )
        return self

    def orderly(
        self,
        group: str,
        topics: Mapping[str, str],
        listener: OrderlyListener,
        *,
        client_id: str = "client-0",
        options: ConsumerOptions | None = None,
    ) -> OrderlyConsumer:
        """Make an orderly consumer; `start` it.

        Args:
            group: Its group, 1 to 120 of the characters of a topic's name.
            topics: Topic to tag expression (`*`: all).
            listener: Gets batches of one queue, one after the other; see `broker.consumer.orderly`.
            client_id: Its name among the members of the group.
            options: How it behaves.

        Raises:
            MessageRefused: The group's name is not allowed.
            ValueError: No topic, a topic without subscriptions, or a tag expression without a tag.
        """
        check_group(group)
        return OrderlyConsumer(
            self.shared, group, client_id, topics, options=options or ConsumerOptions(), listener=listener
        )

    def concurrent(
        self,
        group: str,
        topics: Mapping[str, str],
        listener: ConcurrentListener,
        *,
        client_id: str = "client-0",
        options: ConsumerOptions | None = None,
    ) -> ConcurrentConsumer:
        """Make a concurrent consumer; `start` it. Arguments and errors as `orderly`."""
        check_group(group)
        return ConcurrentConsumer(
            self.shared, group, client_id, topics, options=options or ConsumerOptions(), listener=listener
        )

    def broadcasting(
        self,
        group: str,
        topics: Mapping[str, str],
        listener: ConcurrentListener,
        *,
        client_id: str = "client-0",
        options: ConsumerOptions | None = None,
    ) -> BroadcastConsumer:
        """Make a broadcasting consumer; `start` it. Arguments and errors as `orderly`; its client id names a file.

        Raises:
            MessageRefused, ValueError: As `orderly`; MessageRefused also for a client id with other characters, or
                one that is too long for a file's name beside the group's.
        """
        check_group(group)
        check_name(client_id)
        if len(group) + len(client_id) > NAMES_CHARS_MAX:
            raise MessageRefused(
                f"group and client id have {len(group) + len(client_id)} characters together; those of a broadcasting "
                f"consumer name its file: use up to {NAMES_CHARS_MAX}"
            )
        return BroadcastConsumer(
            self.shared, group, client_id, topics, options=options or ConsumerOptions(), listener=listener
        )

    def close(self) -> None:
        """Stop all consumers and write what is to be written; call it before the store is closed. Harmless twice.

        A listener that still runs in an executor keeps its queue, and what it answers later does not count.
        """
        self.shared.close()


def check_group(name: str) -> None:
    """Check a group's name (D6).

    Raises:
        MessageRefused: It is empty, too long for its dead-letter topic, or has a character that topics may not have.
    """
    check_name(name[: GROUP_BYTES_MAX + 8])
    if len(name) > GROUP_BYTES_MAX:
        raise ValueError(f"group name {name[:140]!r} is longer than {GROUP_BYTES_MAX} characters")
