"""A Thrift server: accepts connections, dispatches their calls to one service, and bounds what they may take.

Both services run on this class, each on a port of its own. It holds no rule of either service.

Replies are written at the end of a turn of the loop, not when they are made: a connection with something to write
asks for the turn's end (`request_turn`) and is flushed there. So the replies of one turn to one connection are one
write.

Places are given in the order of asking, up to `maxConnections`, of one address up to `maxConnectionsPerAddress`.
Where none is left, a connection that was idle for longer than `idleTimeout` is closed for it. The sweep of all
connections lists such ones once a second, so that a connect costs the same with ten thousand open as with ten; between
two sweeps only those on the list make room.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from broker.runtime.bundle import Runtime
from broker.runtime.metrics import Counter, declare
from conf.sections.limits import LimitsConfig
from proxy.access.access import Access, Policy
from proxy.limits.limiter import Limiter
from proxy.limits.quota import LimitExceeded, Quota
from proxy.port.accepting import ServerLimits
from proxy.port.calls_pass import CallsPass, PassLine
from proxy.port.connection import Connection
from proxy.port.gate import SURPLUS_SECONDS, Gate
from proxy.port.network import Listener, Network, NoPeer, Peer
from proxy.port.reply_slot import ReplySlot
from proxy.port.shares import Shares
from proxy.port.too_long import answer_too_long
from proxy.tls.channel import TlsTransport
from proxy.tls.port import TlsPort
from proxy.wire.call import Call, parse_call
from proxy.wire.errors import (
    APPLICATION_INTERNAL_ERROR,
    APPLICATION_PROTOCOL_ERROR,
    APPLICATION_UNKNOWN_METHOD,
    FatalWireError,
    FrameError,
    WireError,
)
from proxy.wire.frames import CutFrame
from proxy.wire.generic.calls import encode_application_exception
from upstream.budget import Budget, Pressure

REQUESTS = declare("pyddmq_requests_total", "Thrift calls received", ("service", "method"))
CONNECTIONS = declare("pyddmq_connections", "Thrift connections open now", ("service",), kind="gauge")
CONNECTIONS_REFUSED = declare(
    "pyddmq_connections_refused_total",
    "Connections closed by the server: garbage, http, too_many, address, idle, descriptors, memory, "
    "expired, revoked, limit and others",
    ("service", "reason"),
)
CALLS_FAILED = declare(
    "pyddmq_calls_failed_total",
    "Calls answered with a TApplicationException (undecodable arguments, unknown method, internal error), or too_long",
    ("service", "kind"),
)

_WHY = {
    "too_many": "the maximum number of connections is open (maxConnections)",
    "address": "the maximum number of connections from this address is open (maxConnectionsPerAddress)",
    "idle": "it was idle for longer than idleTimeout, and a new connection needed its place",
    "descriptors": "the process has too few file descriptors; raise its limit of open files (`ulimit -n`)",
    "memory": "the node is short of memory (memoryMax)",
    "slow_frame": "a frame took longer than frameTimeout to arrive",
    "slow_reader": "it read less than 64 KiB of its pending replies within writeTimeout",
    "expired": "the token that authenticated it has expired",
    "limit": "the maximum number of connections of this client is open (section `limits`)",
    "limit_idle": "it was idle for longer than the idleTimeout of its client (section `limits`)",
    "revoked": "the token that authenticated it, or its key, was removed",
}
"""Sentences for the reasons that are ours."""

IDLE_LISTED = 256
"""Connections known by name that may make room, per second."""

Handler = Callable[[Connection, Call], None]
"""Handles one decoded call header: scans the arguments and answers through the connection, now or later."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Commons:
    """What the ports of one node have in common.

    Attributes:
        runtime: Time, the event loop, the node's registry, log lines.
        request_turn: Called when a connection has something to write; the node then ends the turn.
        disk_at_work: Whether a flush of the store is under way.
        admin_hint: Where HTTP is served, for the answer to an HTTP client on a port.
        budget: The node's account of memory; without one there is no ceiling.
        relieve: Called when a connection brought the account to where others must be closed.
        shares: The loop's time; of each port's own when left out.
        access: The rules; without them everything is allowed.
        limiter: What each client may take; without it there is no limit.
    """

    runtime: Runtime
    request_turn: Callable[[], None]
    disk_at_work: Callable[[], bool] = lambda: False
    admin_hint: str = ""
    budget: Budget | None = None
    relieve: Callable[[], None] = lambda: None
    shares: Shares | None = None
    access: Access | None = None
    limiter: Limiter | None = None


class ThriftServer:
    """One service on one port.

    Attributes:
        requests: How many calls it took so far.
    """

    def __init__(
        self,
        service: str,
        handlers: Mapping[str, Handler],
        *,
        limits: ServerLimits,
        commons: Commons,
    ) -> None:
        """Set up; nothing listens yet.

        Args:
            service: Name for metrics and pages: "producer" or "consumer".
            handlers: Method name to handler.
            limits: Bounds per connection and in all.
            commons: What it has in common with the other ports of its node.
        """
        runtime = commons.runtime
        metrics = runtime.metrics
        self.service = service
        self.requests = 0
        self.limits = limits
        self._access = commons.access
        self._limiter = limiter = commons.limiter or Limiter(
            LimitsConfig(), clock=runtime.clock, metrics=metrics, limited_log=runtime.limited_log
        )
        self._gate = Gate(limiter, service, make_room=self._make_room, now=self.now)
        self.admin_hint = commons.admin_hint
        self.budget = commons.budget or Budget()
        self.relieve = commons.relieve
        self.shares = commons.shares or Shares(runtime)
        self._limited_log = runtime.limited_log
        # A dictionary for its order: what is done to all connections is done in the order they came, on every run.
        self.connections: dict[Connection, None] = {}
        self._clock = runtime.clock
        self._scheduler = runtime.scheduler
        self._metrics = metrics
        self._request_turn = commons.request_turn
        self._disk_at_work = commons.disk_at_work
        self._dirty: list[Connection] = []
        self._hosts: dict[str, int] = {}
        self._idle: dict[Connection, None] = {}
        """Some of those that were idle for long when the last sweep came by, the oldest first."""
        self._plain: Listener | None = None
        self._encrypted: Listener | None = None
        self._network: Network | None = None
        self._over = False
        self._open = metrics.counter(CONNECTIONS, service)
        self._handlers: dict[str, tuple[Handler, Counter, bool]] = {}
        """By method: what takes a call, how many came, and whether they wait for a pass."""
        self.calls_pass: CallsPass | None = None
        self.serve(handlers)

    @property
    def address(self) -> tuple[str, int]:
        """Host and port of the plain port, which there is."""
        assert self._plain is not None, "the server listens"
        return self._plain.address

    @property
    def plain_address(self) -> tuple[str, int] | None:
        """The same; None where there is none."""
        return None if self._plain is None else self._plain.address

    @property
    def tls_address(self) -> tuple[str, int] | None:
        """Host and port of the TLS port; None where there is none."""
        return None if self._encrypted is None else self._encrypted.address

    def serve(self, handlers: Mapping[str, Handler], line: PassLine | None = None) -> None:
        """Have calls from now on handled by these, on open connections too.

        Args:
            handlers: Method name to handler, of calls that are handled one by one, as they come.
            line: Handles the others, those of a turn at once.
        """
        self.run_pass()
        known: dict[str, tuple[Handler, bool]] = {}
        if line is not None:
            self.calls_pass = CallsPass(
                line, self.step_failed, self._request_turn, self.shares, disk_at_work=self._disk_at_work
            )
            known |= dict.fromkeys(line.methods, (self.calls_pass.add, True))
        known |= {name: (handler, False) for name, handler in handlers.items()}
        self._handlers = {
            name: (handler, self._metrics.counter(REQUESTS, self.service, name), waits)
            for name, (handler, waits) in known.items()
        }

    async def listen(self, network: Network, host: str, port: int, *, backlog: int) -> None:
        """Start to accept connections. Raises ListenError."""
        self._network = network
        self._plain = await network.listen(self._accepted, host, port, backlog=backlog)

    def _accepted(self) -> Connection:
        return Connection(self)

    async def listen_tls(self, network: Network, tls: TlsPort, host: str, port: int, *, backlog: int) -> None:
        """Start to accept connections by TLS, beside the others; they share the limits. Raises ListenError."""
        self._network = network
        self._encrypted = await network.listen(lambda: tls.channel(Connection(self)), host, port, backlog=backlog)

    def stop_listening(self) -> None:
        """Accept no more; open connections stay."""
        for listener in (self._plain, self._encrypted):
            if listener is not None:
                listener.close()

    def close_connections(self, *, at_once: bool = False) -> None:
        """Close all connections, also those accepted later, after what was written has left or at once."""
        self._over = True
        for connection in list(self.connections):
            if at_once:
                connection.abort()
            else:
                connection.close()

    # What connections call.

    def now(self) -> float:
        """Monotonic seconds."""
        return self._clock.monotonic()

    def admit(self, connection: Connection, descriptor: int) -> bool:
        """Count a new connection; False when there are too many, or no memory or descriptors for another one.

        Args:
            connection: It has just been accepted.
            descriptor: Its number, the lowest that was free, so about as many are open; -1 where there is none.
        """
        if self._over:
            return False
        limits, host = self.limits, connection.host
        if len(self.connections) >= limits.connections_max and not self._make_room():
            self._refuse("too_many", connection)
            return False
        if self._hosts.get(host, 0) >= limits.address_connections_max and not self._make_room(host=host):
            self._refuse("address", connection)
            return False
        if descriptor >= limits.descriptors_max:
            self._make_room()  # For the next one; this one has a number that is kept for the store.
            self._refuse("descriptors", connection)
            return False
        if self.budget.level >= Pressure.CLOSING:
            self._refuse("memory", connection)
            return False
        if self._limiter.active:
            over = self._limiter.refusal(host, self.service, limits.connections_max - len(self.connections))
            if over is not None and not self._make_room(over=over):
                self._limiter.refused(over)
                self._refuse("limit", connection, over.text)
                return False
            connection.quota = self._limiter.enter(host, self.service)
        connection.since_ms = self._clock.wall_ms()
        connection.share.last = self.now()
        self.connections[connection] = None
        self._hosts[host] = self._hosts.get(host, 0) + 1
        self._open.value = len(self.connections)
        return True

    def peer_of(self, transport: asyncio.BaseTransport) -> Peer:
        """Return what the system knows of a connection's other end."""
        if self._network is None:
            return NoPeer()
        return self._network.peer(transport.below if isinstance(transport, TlsTransport) else transport)

    def forget(self, connection: Connection) -> None:
        """A connection is gone; harmless twice."""
        if connection not in self.connections:
            return
        del self.connections[connection]
        host = connection.host
        left = self._hosts[host] - 1
        if left:
            self._hosts[host] = left
        else:
            del self._hosts[host]
        self._open.value = len(self.connections)
        if connection.quota is not None:
            self._limiter.leave(connection.quota, self.service)
            connection.quota = None

    def _make_room(self, *, host: str | None = None, over: LimitExceeded | None = None) -> bool:
        """Close a connection that has been idle for long, of an address, of a client or any; False: there is none."""
        idle_since = self.now() - self.limits.idle_seconds
        for connection in list(self._idle):
            quota = connection.quota
            if host is not None and connection.host != host:
                continue
            if over is not None and (quota is None or over.meter not in quota.meters):
                continue
            del self._idle[connection]
            if connection in self.connections and connection.is_idle(idle_since):
                self._refuse("idle", connection)
                connection.drop()
                return True
        return False

    def refused(self, connection: Connection, error: FrameError) -> None:
        """A connection sent something that is no frame."""
        self._refuse(error.reason, connection, str(error))

    def touch(self, connection: Connection) -> None:
        """A connection has something to write at the end of this turn."""
        if not self._dirty:
            self._request_turn()
        self._dirty.append(connection)

    def resume_soon(self, connection: Connection) -> None:
        """Read on from a connection when its turn comes."""
        self.shares.defer(connection)

    def go_on_soon(self, connection: Connection) -> None:
        """Let a connection continue after the end of this turn, which has been asked for."""
        self._scheduler.call_soon(connection.go_on)

    def rest(self, connection: Connection, seconds: float) -> None:
        """Let a connection rest."""
        self._scheduler.call_later(seconds, connection.rested)

    def handle(self, connection: Connection, frame: bytes) -> bool:
        """Dispatch one frame; returns whether it waits for the pass of this turn.

        A call that cannot be decoded is answered or ends its connection (D21).
        """
        try:
            call = parse_call(frame)
        except FatalWireError as error:
            self._refuse("garbage", connection, str(error))
            connection.abort()
            connection.closed = True
            return False
        calls_pass = self.calls_pass
        if connection.slots and calls_pass is not None and calls_pass.ends_before(call):
            calls_pass.run()
            if connection.closed:
                return False
        if self._access is not None and connection.rights is None:
            # Not when it is accepted: a certificate is known after the handshake.
            connection.rights = self._access.rights_of(connection.host, connection.certificate)
        quota = connection.quota
        if quota is not None and not self._gate.admits(connection, quota, call):
            return False
        if type(frame) is CutFrame:
            self._refuse_too_long(connection, call, frame)
            return False
        found = self._handlers.get(call.method)
        if found is None:
            self._fail(connection, call, APPLICATION_UNKNOWN_METHOD, self._unknown(call.method))
            return False
        handler, requests, waits = found
        requests.value += 1
        self.requests += 1
        if waits:
            handler(connection, call)
            return True
        try:
            handler(connection, call)
        except Exception as error:
            # A place that the call has taken is the one that is answered.
            slot = connection.slots[-1] if connection.slots else None
            is_taken = slot is not None and slot.number == connection.requests and slot.data is None
            answering = slot if slot is not None and is_taken else connection
            answering.answer(self._failure(connection, call, error))
        return False

    def fail_call(self, slot: ReplySlot, call: Call, error: Exception) -> None:
        """Answer a call that has its place and could not be handled; one that has its answer keeps it."""
        reply = self._failure(slot.connection, call, error)
        if slot.data is None:
            slot.answer(reply)

    def _failure(self, connection: Connection, call: Call, error: Exception) -> bytes:
        """Count and log a call that could not be handled, and return its answer.

        A fault of ours must not take other requests with it; it is logged with its cause.
        """
        if isinstance(error, WireError):
            self._refuse_call(connection, call, str(APPLICATION_PROTOCOL_ERROR), str(error))
            return encode_application_exception(call, APPLICATION_PROTOCOL_ERROR, str(error))
        self._limited_log.fault(
            "call_failed",
            error,
            kind=f"{self.service} {call.method}",
            service=self.service,
            method=call.method,
            client=connection.address,
        )
        self._metrics.counter(CALLS_FAILED, self.service, str(APPLICATION_INTERNAL_ERROR)).add()
        return encode_application_exception(call, APPLICATION_INTERNAL_ERROR, f"internal error: {error}")

    def step_failed(self, connection: Connection, error: Exception) -> None:
        """A fault of ours met requests in steps, or a whole pass: they get no answer, since their effect is unknown."""
        self._limited_log.fault("call_failed", error, kind=f"{self.service} steps", client=connection.address)
        connection.abort()

    def _refuse_too_long(self, connection: Connection, call: Call, frame: CutFrame) -> None:
        """Answer a call that was too long to be read; one that carries results ends its connection."""
        reply = answer_too_long(call, frame.problem) if call.method in self._handlers else None
        if reply is None:
            self._refuse("too_long", connection, frame.problem)
            connection.leave_unanswered()
            return
        self._refuse_call(connection, call, "too_long", frame.problem)
        connection.answer(reply)

    def run_pass(self) -> None:
        """Handle the calls that were gathered."""
        if self.calls_pass is not None:
            self.calls_pass.run()

    @property
    def has_gathered(self) -> bool:
        """Whether calls wait for a pass."""
        return self.calls_pass is not None and self.calls_pass.has_calls

    def run_ready_pass(self) -> None:
        """Handle them, unless they gather for the flush that follows the one under way."""
        if self.calls_pass is not None:
            self.calls_pass.run_ready()

    def flush(self) -> None:
        """Write the replies of this turn."""
        self.shares.spent = 0.0
        if self._dirty:
            dirty, self._dirty = self._dirty, []
            for connection in dirty:
                connection.flush()

    def abort_unkept(self) -> None:
        """End every connection with a reply of this turn that is for an ack or has messages; keep the others."""
        dirty, self._dirty = self._dirty, []
        for connection in dirty:
            if connection.carries_promise or connection.outbox.carries_messages:
                connection.abort()
            else:
                self._dirty.append(connection)

    def sweep(self) -> None:
        """Close connections whose frame arrives, or whose replies leave, too slowly. Called every second or so."""
        now = self._clock.monotonic()
        oldest = now - self.limits.frame_seconds_max
        idle_since = now - self.limits.idle_seconds
        self._idle.clear()
        for connection in list(self.connections):
            if len(self._idle) < IDLE_LISTED and connection.is_idle(idle_since):
                self._idle[connection] = None
            connection.look_for_end()
            if connection.closed:
                continue
            partial_since = connection.intake.partial_since
            if partial_since is not None and partial_since < oldest:
                self._refuse("slow_frame", connection)
                connection.abort()
            elif connection.outbox.reads_too_little(now, self.limits.write_seconds_max):
                self._refuse("slow_reader", connection)
                connection.drop()
            elif self._access is not None and connection.rights is not None and self._access.is_over(connection.rights):
                self._refuse("expired", connection)
                connection.drop()
            elif connection.quota is not None:
                self._sweep_limited(connection, connection.quota, now)

    def _sweep_limited(self, connection: Connection, quota: Quota, now: float) -> None:
        """Close a connection that has no place among those of its principal, or is idle for longer than it may."""
        if quota.surplus_since is not None and quota.surplus_since <= now - SURPLUS_SECONDS:
            self._refuse("limit", connection)
            connection.part()
        elif quota.idle_seconds is not None and connection.is_idle(now - quota.idle_seconds):
            self._refuse("limit_idle", connection)
            connection.drop()

    def limits_changed(self) -> None:
        """Have open connections counted again, after another section `limits` came into force."""
        for connection in self.connections:
            connection.quota = self._limiter.renew(connection.quota, connection.host, self.service)

    def review(self, access: Access, before: Policy) -> None:
        """Decide again what open connections may do, after another policy took the place of one.

        What waits for messages by a right that is lost is answered empty; its client asks again and is denied.
        """
        # What arrived before the change is handled before it.
        self.run_pass()
        for connection in list(self.connections):
            rights = connection.rights
            if rights is None:
                continue
            renewed = access.renewed(rights, connection.host, connection.certificate, before)
            if renewed is None:
                self._refuse("revoked", connection)
                connection.drop()
                continue
            connection.rights = renewed
            if rights.may_not_any_more(renewed):
                connection.withdraw_waiting()

    def close_for_memory(self, connection: Connection) -> None:
        """Close a connection that holds much, at once; the caller logs which."""
        self._metrics.counter(CONNECTIONS_REFUSED, self.service, "memory").add()
        connection.drop()

    def is_stranger(self, connection: Connection) -> bool:
        """Whether a peer has no rights or, where there are no rules, has never completed a call."""
        if self._access is None:
            return not connection.requests
        if connection.rights is None:
            connection.rights = self._access.rights_of(connection.host, connection.certificate)
        return not connection.rights.has_any

    def _unknown(self, method: str) -> str:
        other = {"consumer": "producer", "producer": "consumer"}.get(self.service)
        return f"unknown method {method!r}; this is the {self.service} port, the {other} port is separate"

    def _refuse(self, reason: str, connection: Connection, text: str = "") -> None:
        """Count a closed connection and log it, once a minute for each reason (D25)."""
        self._metrics.counter(CONNECTIONS_REFUSED, self.service, reason).add()
        self._limited_log.note(
            "connection_refused",
            kind=f"{self.service} {reason}",
            service=self.service,
            client=connection.address,
            reason=reason,
            text=text or _WHY[reason],
        )

    def _fail(self, connection: Connection, call: Call, kind: int, text: str) -> None:
        self._refuse_call(connection, call, str(kind), text)
        connection.answer(encode_application_exception(call, kind, text))

    def _refuse_call(self, connection: Connection, call: Call, kind: str, text: str) -> None:
        """Count a call that is answered with what was wrong with it, and log it, once a minute for each kind."""
        self._metrics.counter(CALLS_FAILED, self.service, kind).add()
        self._limited_log.note(
            "call_refused",
            kind=f"{self.service} {kind}",
            service=self.service,
            client=connection.address,
            method=call.method,
            text=text,
        )
