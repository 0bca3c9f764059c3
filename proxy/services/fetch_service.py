"""fetch and ack: the low-level half of ConsumerService, over the groups of this node that have it (docs/low-level.md).

What a fetch gets is `upstream.fetch`'s; this module has the wire's part: which calls are refused and how
(a fetch by FetchResponse.code, an ack by false; both in the log), fetches that wait for something to arrive (at most
`max(maxLingerTime, 20 ms)`, as pulls), and acks that are answered when they are durable.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from broker.runtime.bundle import Runtime
from broker.runtime.metrics import declare
from conf.sections.node import NodeConfig
from proxy.limits.quota import FETCHES, LimitExceeded
from proxy.port.connection import Connection
from proxy.port.reply_slot import ReplySlot
from proxy.port.server import Handler
from proxy.services.access.guard import Guard
from proxy.services.results.ack_syncs import AckSyncs
from proxy.services.waiting_fetches import FetchLine, Found, WaitingFetch
from proxy.wire.call import Call
from proxy.wire.errors import ArgumentsError
from proxy.wire.fetch_reply import QueueMessages, encode_fetch_refusal, encode_fetch_reply
from proxy.wire.replies import encode_bool_reply
from proxy.wire.scanning.scan import scan_ack, scan_fetch
from pyddmq.codes import PullCode
from upstream.budget import Budget, Pressure
from upstream.delivery.group import ConsumerGroup
from upstream.fetch.fetchers import FetcherClient
from upstream.fetch.fetching import ACKS_REFUSED, Fetching, FetchOrder, FetchRefused, Positions

FETCHES_REFUSED = declare("pyddmq_fetches_refused_total", "Fetches answered with a code and no queue", ("reason",))

REPLY_BYTES_MAX = 1 << 20
"""Bytes of messages in one reply: of small ones that takes 4 ms or so, and others have their turn between."""
CONSUMER_CHARS_MAX = 255
"""Of a consumerId."""


class _MessageFetch(WaitingFetch):
    """A fetch of messages.

    Attributes:
        fetching: Who serves its group.
        fetcher: Its client, as its group knows it.
        order: What it asks for.
    """

    __slots__ = ("_service", "_unlisten", "fetcher", "fetching", "order")

    def __init__(
        self,
        service: FetchService,
        slot: ReplySlot,
        linger_ms: int | None,
        *,
        fetching: Fetching,
        fetcher: FetcherClient | None,
        order: FetchOrder,
    ) -> None:
        super().__init__(service.line, slot, linger_ms)
        self._service = service
        self.fetching = fetching
        self.fetcher = fetcher
        self.order = order

    def read(self) -> Found | None:
        """Return messages, or why there can be none."""
        reply, is_news = self._fetched()
        return (reply, None) if is_news else None

    def empty(self) -> bytes:
        """Return a reply without messages."""
        return encode_fetch_reply(self.slot.call, [])

    def last(self) -> Found:
        """Return the messages that have arrived, or an empty reply."""
        return self._fetched()[0], None

    def _fetched(self) -> tuple[bytes, bool]:
        """Return the reply as of now, and whether it has messages or a refusal."""
        try:
            fetched = self.fetching.fetch(self.order, self.fetcher)
        except FetchRefused as refused:
            return self._service.refuse(self.slot, refused, self.fetching.group.name), True
        rows = [QueueMessages(*row) for row in fetched.rows]
        return encode_fetch_reply(self.slot.call, rows), fetched.is_news

    def over(self, exceeded: LimitExceeded) -> bytes:
        """Refuse it."""
        refused = FetchRefused(PullCode.LIMITED, exceeded.text)
        return self._service.refuse(self.slot, refused, self.fetching.group.name)

    def listen(self) -> None:
        """Begin to wait."""
        if self.fetcher is not None:
            self.fetcher.waiting += 1
        self._unlisten = self.fetching.listen(self.wake)

    def leave(self) -> None:
        """Wait no longer."""
        self._unlisten()
        if self.fetcher is not None:
            self.fetcher.waiting -= 1
            self.fetcher.seen = self._service.now()


class _WaitingAck(NamedTuple):
    """An ack until it is durable."""

    slot: ReplySlot
    counted: bool

    def reported(self, is_durable: bool) -> None:
        """Answer."""
        if not self.slot.connection.closed:
            self.slot.answer(encode_bool_reply(self.slot.call, is_durable and self.counted))


class FetchService:
    """The handlers of fetch and ack.

    Attributes:
        line: Fetches that wait.
        now: Monotonic seconds.
    """

    def __init__(
        self,
        groups: Mapping[str, ConsumerGroup],
        *,
        runtime: Runtime,
        settings: Callable[[], NodeConfig],
        acks: AckSyncs,
        acks_refused: Callable[[], Exception | None],
        budget: Budget,
        guard: Guard,
        leaving: Callable[[str], ConsumerGroup | None],
    ) -> None:
        """Set up.

        Args:
            groups: The node's live groups by name.
            runtime: The event loop, for the end of a linger; counts; log lines.
            settings: Of the node, as they are now.
            acks: Makes acks durable.
            acks_refused: Why positions cannot be recorded at present, or None.
            budget: The node's account of memory.
            guard: Looks at rights, where there are rules.
            leaving: Finds a group that was taken out and drains: acks for it still count.
        """
        self._groups = groups
        self._guard = guard
        self._leaving = leaving
        self._settings = settings
        self._acks = acks
        self._acks_refused = acks_refused
        self._budget = budget
        self.now = runtime.clock.monotonic
        self.line = FetchLine(FETCHES, runtime.scheduler, settings)
        self._metrics = runtime.metrics
        self._limited_log = runtime.limited_log
        self._fetching: dict[str, Fetching] = {}

    def handlers(self) -> dict[str, Handler]:
        """Method name to handler."""
        return {"fetch": self.fetch, "ack": self.ack}

    # Fetches

    def fetch(self, connection: Connection, call: Call) -> None:
        """Answer with what is there of the caller's queues, or wait for it."""
        request = scan_fetch(call)
        if connection.rights is not None and not self._guard.fetch(connection, call, request):
            return
        consumer = _consumer(request["consumerId"])
        slot = connection.later(call.header())
        only_named = request.get("onlyNamed")
        try:
            fetching = self._serving(request["groupId"], request["cluster"])
            order = FetchOrder(
                consumer=consumer,
                positions=request.get("fetchOffset") or {},
                only_named=bool(only_named),
                count_max=request.get("maxBatchSize"),
                bytes_max=min(fetching.group.reply_bytes_max, REPLY_BYTES_MAX),
                times=only_named is not None,
            )
            fetcher = fetching.seen(order, connection.address)
        except FetchRefused as refused:
            slot.answer(self.refuse(slot, refused, request["groupId"]))
            return
        linger_ms = request.get("maxLingerTime")
        _MessageFetch(self, slot, linger_ms, fetching=fetching, fetcher=fetcher, order=order).serve()

    def _serving(self, name: str, cluster: str) -> Fetching:
        """Return who serves a group's fetches. Raises FetchRefused."""
        group = self._groups.get(name)
        own = self._settings().broker_cluster
        if cluster not in ("", own):
            text = f"cluster {cluster!r} is not the cluster of this node; pass {own!r}, or omit it"
            raise FetchRefused(PullCode.OTHER_CLUSTER, text)
        if group is None:
            raise FetchRefused(PullCode.NO_SUCH_GROUP, f"no group {name!r} is configured on this node")
        if not group.consumes:
            text = f"group {name!r} has no enabled topic; enable one in the configuration"
            raise FetchRefused(PullCode.GROUP_DISABLED, text)
        if not group.is_low_level:
            text = f"group {name!r} is not low level; use pull and submit, or write actions: [LowLevel] for its topics"
            raise FetchRefused(PullCode.NOT_LOW_LEVEL, text)
        if self._budget.level >= Pressure.REFUSING:
            raise FetchRefused(PullCode.OVERLOADED, "the node is short of memory (memoryMax); fetch again later")
        if self.line.free <= 0:
            raise FetchRefused(PullCode.OVERLOADED, f"{self.line.count} fetches already wait; use fewer connections")
        return self._fetching_of(group)

    def _fetching_of(self, group: ConsumerGroup) -> Fetching:
        fetching = self._fetching.get(group.name)
        if fetching is None or fetching.group is not group:
            fetching = self._fetching[group.name] = Fetching(group, group.node)
        return fetching

    def refuse(self, slot: ReplySlot, refused: FetchRefused, group: str) -> bytes:
        """Count a refused fetch, log it once a minute for each code (D25), and encode the answer."""
        self._metrics.counter(FETCHES_REFUSED, refused.code.name.lower()).add()
        self._limited_log.note(
            "fetch_refused",
            kind=refused.code.name,
            code=int(refused.code),
            consumer_group=group[:CONSUMER_CHARS_MAX],
            client=slot.connection.address,
            text=str(refused),
        )
        return encode_fetch_refusal(slot.call, refused.code)

    # Acks

    def ack(self, connection: Connection, call: Call) -> None:
        """Move positions; answered when they are durable, and false where any of them did not count (W73)."""
        request = scan_ack(call)
        if connection.rights is not None and not self._guard.ack(connection, call, request["groupId"]):
            return
        consumer = _consumer(request["consumerId"])
        offsets: Positions = request["offsets"]
        group = self._acked_group(request["groupId"], request["cluster"])
        if isinstance(group, str):
            self._metrics.counter(ACKS_REFUSED, group).add(sum(map(len, offsets.values())))
            self._limited_log.note(
                "ack_refused",
                kind=group,
                reason=group,
                consumer=consumer,
                consumer_group=request["groupId"][:CONSUMER_CHARS_MAX],
                client=connection.address,
            )
            connection.answer(encode_bool_reply(call, False))
            return
        refused = self._fetching_of(group).ack(consumer, offsets)
        self._acks.add(_WaitingAck(connection.later(call.header()), not refused).reported)

    def _acked_group(self, name: str, cluster: str) -> ConsumerGroup | str:
        """Return the group of an ack, or the reason why that cannot count at all."""
        group = self._groups.get(name) or self._leaving(name)
        if cluster not in ("", self._settings().broker_cluster):
            return "other_cluster"
        if group is None:
            return "no_such_group"
        if self._acks_refused() is not None:
            return "acks_refused"
        return group


def _consumer(name: str) -> str:
    """Check a consumerId. Raises ArgumentsError."""
    if not 0 < len(name) <= CONSUMER_CHARS_MAX:
        raise ArgumentsError(f"invalid consumerId of {len(name)} characters; use 1 to {CONSUMER_CHARS_MAX}")
    return name
