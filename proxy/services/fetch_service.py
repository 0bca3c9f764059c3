"""fetch and ack: the low-level half of ConsumerService, over the groups of this node that have it (docs/low-level.md).

What a fetch gets is `upstream.fetch`'s; this module has the wire's part: which calls are refused and how
(a fetch by FetchResponse.code, an ack by false; both in the log), fetches that wait for something to arrive (at most
`max(maxLingerTime, 20 ms)`, as pulls), and acks that are answered when they are durable.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from broker.runtime.bundle import Runtime
from broker.runtime.metrics import declare
from conf.sections.node import NodeConfig
from proxy.limits.meter import Meter
from proxy.limits.quota import AFTER_MS, FETCHES, unpark
from proxy.port.connection import Connection
from proxy.port.reply_slot import ReplySlot
from proxy.port.server import Handler
from proxy.services.access.guard import Guard
from proxy.services.results.ack_syncs import AckSyncs
from proxy.services.waiting_pulls import LINGER_MS_MIN
from proxy.wire.call import Call
from proxy.wire.errors import ArgumentsError
from proxy.wire.fetch_reply import QueueMessages, encode_fetch_refusal, encode_fetch_reply
from proxy.wire.replies import encode_bool_reply
from proxy.wire.scanning.scan import scan_ack, scan_fetch
from pyddmq.codes import PullCode
from upstream.budget import Budget, Pressure
from upstream.delivery.group import ConsumerGroup
from upstream.fetch.fetchers import FetcherClient
from upstream.fetch.fetching import ACKS_REFUSED, Fetching, FetchOrder, FetchRefused, FetchResult, Positions

FETCHES_REFUSED = declare("pyddmq_fetches_refused_total", "Fetches answered with a code and no queue", ("reason",))

REPLY_BYTES_MAX = 1 << 20
"""Bytes of messages in one reply: of small ones that takes 4 ms or so, and others have their turn between."""
CONSUMER_CHARS_MAX = 255
"""Of a consumerId."""


class _Wanted(NamedTuple):
    """A fetch that is served."""

    fetching: Fetching
    fetcher: FetcherClient | None
    order: FetchOrder
    linger_ms: int


class FetchService:
    """The handlers of fetch and ack."""

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
        self._clock = runtime.clock
        self._scheduler = runtime.scheduler
        self._metrics = runtime.metrics
        self._limited_log = runtime.limited_log
        self._fetching: dict[str, Fetching] = {}
        self._waiting = 0

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
        call = call.header()
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
            connection.answer(self._refuse(call, refused, connection, request["groupId"]))
            return
        linger_ms = min(max(request.get("maxLingerTime") or 0, LINGER_MS_MIN), self._settings().max_linger_time)
        wanted = _Wanted(fetching, fetcher, order, linger_ms)
        if connection.may_start():
            self._start(None, connection, call, wanted)
        else:
            slot = connection.later()
            slot.start = partial(self._start, slot, connection, call, wanted)
            slot.withdraw = partial(slot.answer, encode_fetch_reply(call, []))

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
        if self._waiting >= self._settings().max_parked_pulls:
            raise FetchRefused(PullCode.OVERLOADED, f"{self._waiting} fetches already wait; use fewer connections")
        return self._fetching_of(group)

    def _fetching_of(self, group: ConsumerGroup) -> Fetching:
        fetching = self._fetching.get(group.name)
        if fetching is None or fetching.group is not group:
            fetching = self._fetching[group.name] = Fetching(group, group.node)
        return fetching

    def _start(self, slot: ReplySlot | None, connection: Connection, call: Call, wanted: _Wanted) -> None:
        """Serve a fetch whose turn on its connection has come (D18)."""
        answer = connection.answer if slot is None else slot.answer
        fetched = self._fetched(wanted, call, connection)
        if isinstance(fetched, bytes):
            answer(fetched)
        elif fetched.is_news or connection.ended:
            answer(_encoded(call, fetched))
        else:
            self._park(connection.later() if slot is None else slot, connection, call, wanted)

    def _fetched(self, wanted: _Wanted, call: Call, connection: Connection) -> FetchResult | bytes:
        """Read what is there; or return the answer that says why that cannot be."""
        try:
            return wanted.fetching.fetch(wanted.order, wanted.fetcher)
        except FetchRefused as refused:
            return self._refuse(call, refused, connection, wanted.fetching.group.name)

    def _park(self, slot: ReplySlot, connection: Connection, call: Call, wanted: _Wanted) -> None:
        """Wait for an arrival until the linger ends or the client goes."""
        fetcher = wanted.fetcher
        quota = connection.quota
        counted: Sequence[Meter] = ()
        if quota is not None:
            over = quota.full(FETCHES, self._settings().max_parked_pulls - self._waiting)
            if over is not None:
                quota.refused(over)
                connection.rest(AFTER_MS / 1000)
                refused = FetchRefused(PullCode.LIMITED, over.text)
                slot.answer(self._refuse(call, refused, connection, wanted.fetching.group.name))
                return
            counted = quota.park(FETCHES)

        def leave() -> None:
            timer.cancel()
            unlisten()
            slot.withdraw = None
            unpark(counted, FETCHES)
            self._waiting -= 1
            if fetcher is not None:
                fetcher.waiting -= 1
                fetcher.seen = self._clock.monotonic()

        def wake() -> None:
            if slot.data is not None or connection.closed:
                return
            fetched = self._fetched(wanted, call, connection)
            if isinstance(fetched, bytes):
                leave()
                slot.answer(fetched)
            elif fetched.is_news:
                leave()
                slot.answer(_encoded(call, fetched))

        def withdraw() -> None:
            leave()
            if not connection.closed:
                fetched = self._fetched(wanted, call, connection)
                slot.answer(fetched if isinstance(fetched, bytes) else _encoded(call, fetched))

        self._waiting += 1
        if fetcher is not None:
            fetcher.waiting += 1
        unlisten = wanted.fetching.listen(wake)
        timer = self._scheduler.call_later(wanted.linger_ms / 1000, withdraw)
        slot.withdraw = withdraw

    def _refuse(self, call: Call, refused: FetchRefused, connection: Connection, group: str) -> bytes:
        """Count a refused fetch, log it once a minute for each code (D25), and encode the answer."""
        self._metrics.counter(FETCHES_REFUSED, refused.code.name.lower()).add()
        self._limited_log.note(
            "fetch_refused",
            kind=refused.code.name,
            code=int(refused.code),
            consumer_group=group[:CONSUMER_CHARS_MAX],
            client=connection.address,
            text=str(refused),
        )
        return encode_fetch_refusal(call, refused.code)

    # Acks

    def ack(self, connection: Connection, call: Call) -> None:
        """Move positions; answered when they are durable, and false where any of them did not count (W73)."""
        request = scan_ack(call)
        if connection.rights is not None and not self._guard.ack(connection, call, request["groupId"]):
            return
        consumer = _consumer(request["consumerId"])
        offsets: Positions = request["offsets"]
        reason = self._ack_refusal(request["groupId"], request["cluster"])
        if reason is not None:
            self._metrics.counter(ACKS_REFUSED, reason).add(sum(map(len, offsets.values())))
            self._limited_log.note(
                "ack_refused",
                kind=reason,
                reason=reason,
                consumer=consumer,
                consumer_group=request["groupId"][:CONSUMER_CHARS_MAX],
                client=connection.address,
            )
            connection.answer(encode_bool_reply(call, False))
            return
        group = self._groups.get(request["groupId"]) or self._leaving(request["groupId"])
        assert group is not None, "there is one, or a reason"
        refused = self._fetching_of(group).ack(consumer, offsets)
        slot, header = connection.later(), call.header()

        def durable(is_durable: bool) -> None:
            if not connection.closed:
                slot.answer(encode_bool_reply(header, is_durable and not refused))

        self._acks.add(durable)

    def _ack_refusal(self, name: str, cluster: str) -> str | None:
        """Say why an ack cannot count at all."""
        group = self._groups.get(name) or self._leaving(name)
        if cluster not in ("", self._settings().broker_cluster):
            return "other_cluster"
        if group is None:
            return "no_such_group"
        if self._acks_refused() is not None:
            return "acks_refused"
        return None


def _consumer(name: str) -> str:
    """Check a consumerId. Raises ArgumentsError."""
    if not 0 < len(name) <= CONSUMER_CHARS_MAX:
        raise ArgumentsError(f"invalid consumerId of {len(name)} characters; use 1 to {CONSUMER_CHARS_MAX}")
    return name


def _encoded(call: Call, fetched: FetchResult) -> bytes:
    return encode_fetch_reply(call, [QueueMessages(*row) for row in fetched.rows])
