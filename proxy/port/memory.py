"""What a node does as its memory ceiling nears, and how it comes back; the account itself is `upstream.budget`.

Connections and buffers obey the level of the account by themselves. This module decides the rest: which
connections are closed, which of those that are slowed may continue, and which callbacks learn that there is room again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence

from broker.runtime.bundle import Runtime
from broker.runtime.metrics import declare
from proxy.port.connection import INPUT_BYTES_SLOWED, Connection
from proxy.port.server import ThriftServer
from upstream.budget import Budget, Pressure
from upstream.delivery.group import ConsumerGroup

HELD = declare(
    "pyddmq_memory_held_bytes",
    "Memory held for clients (connections) and groups (jobs), as of the last second",
    ("what",),
    kind="gauge",
)
LIMIT = declare("pyddmq_memory_max_bytes", "Limit of the held memory (memoryMax)", kind="gauge")
LEVEL = declare(
    "pyddmq_memory_pressure",
    "Measure in force: 0 none, 1 eased (no reading ahead), 2 slowed, 3 refusing, 4 closing",
    kind="gauge",
)
MEASURES = declare(
    "pyddmq_memory_measures_total",
    "Times that a measure came into force: eased, slowed, refusing, closing",
    ("measure",),
)

HELD_BYTES_CLOSED = 8 * 1024
"""A connection that holds less than this is not closed near the ceiling: it would bring nothing."""
IDLE_SECONDS = 1.0
"""Silence after which a connection is idle when memory is short."""


class MemoryWatch:
    """Keeps one node under its ceiling.

    Attributes:
        budget: The node's account.
    """

    def __init__(
        self,
        memory_max: int,
        *,
        groups: Callable[[], Iterable[ConsumerGroup]],
        servers: Iterable[ThriftServer],
        runtime: Runtime,
    ) -> None:
        """Set up, with an account of its own.

        Args:
            memory_max: The ceiling, bytes.
            groups: All groups, those that leave included.
            servers: The ports, once there are any.
            runtime: Monotonic time, for how long something has been held; counts; log lines.
        """
        self._servers = servers
        self._sheds_at = self._closes_at = 0
        """The use in bytes from which on it is worthwhile to look again for what can be released, and who is closed."""
        self.budget = Budget(memory_max, changed=self._changed)
        self.budget.count_jobs = self.budget.live_jobs
        self._groups = groups
        self._clock = runtime.clock
        self._scheduler = runtime.scheduler
        self._metrics = runtime.metrics
        self._limited_log = runtime.limited_log

    def sweep(self) -> None:
        """Count what is held, and let some of the slowed connections continue. Called every second or so."""
        budget, metrics = self.budget, self._metrics
        self._sheds_at = self._closes_at = 0
        budget.look()
        self.relieve()
        if budget.level >= Pressure.SLOWED:
            self._favour_some()
        metrics.counter(HELD, "connections").value = budget.used - budget.job_bytes
        metrics.counter(HELD, "jobs").value = budget.job_bytes
        metrics.counter(LIMIT).value = budget.limit
        metrics.counter(LEVEL).value = int(budget.level)

    def recount(self) -> None:
        """Take what has left off the account, and do what it calls for."""
        self.budget.recount()
        self.relieve()

    def relieve(self) -> None:
        """Close what others can do without; near the ceiling also those that held most for longest.

        The latter until publishes can be taken again and, where clients share (`limits.share`), first those of the
        client whose connections hold most together.
        """
        budget = self.budget
        if budget.level >= Pressure.SLOWED and budget.used >= self._sheds_at:
            self._shed()
        if budget.level < Pressure.CLOSING or budget.used < self._closes_at:
            return
        enough = budget.begins(Pressure.SLOWED)
        now = self._clock.monotonic()
        connections = self._connections()
        shares = _held_by_client([each for _, each in connections])
        ranked = sorted(
            connections, key=lambda pair: (shares[_client_of(pair[1])], _weight(pair[1], now)), reverse=True
        )
        for server, connection in ranked:
            if budget.used < enough:
                break
            if connection.held_bytes >= HELD_BYTES_CLOSED:
                self._close(server, connection)
        budget.recount()
        self._closes_at = budget.used + budget.limit // 64

    def _shed(self) -> None:
        """Close connections whose memory others need more, until the pressure ends (D73).

        First unfinished frames of peers without rights, then idle connections above their address' share and, where
        calls are refused already, unfinished frames of others above their address' share.
        """
        budget = self.budget
        now = self._clock.monotonic()
        unfinished = [pair for pair in self._connections() if pair[1].intake.partial_since is not None]
        strangers = [pair for pair in unfinished if pair[0].is_stranger(pair[1])]
        enough = budget.begins(Pressure.EASED)
        self._close_until(enough, sorted(strangers, key=lambda pair: _weight(pair[1], now), reverse=True))
        if budget.used >= enough:
            idle = [pair for pair in self._connections() if pair[1].is_idle(now - IDLE_SECONDS)]
            idle.sort(key=lambda pair: (not pair[0].is_stranger(pair[1]), pair[1].share.last))
            self._close_until(enough, idle, share_bytes=budget.limit // 8)
        if budget.level >= Pressure.REFUSING:
            known = [pair for pair in unfinished if not pair[1].closed]
            known.sort(key=lambda pair: (pair[1].favoured, -_weight(pair[1], now)))
            self._close_until(budget.begins(Pressure.SLOWED), known, share_bytes=enough)
        budget.recount()
        self._sheds_at = budget.used + budget.limit // 64

    def _close_until(self, enough: int, ranked: Sequence[Served], share_bytes: int | None = None) -> None:
        """Close connections in this order until no more than `enough` is held.

        Args:
            enough: Bytes.
            ranked: Connections with their servers.
            share_bytes: What the addresses of all these may share; each one keeps its share. None: nothing is kept.
        """
        held: Counter[str] = Counter()
        share = 0
        if share_bytes is not None:
            for _, connection in ranked:
                held[connection.host] += connection.taken_bytes
            share = share_bytes // max(1, len(held))
        for server, connection in ranked:
            if self.budget.used < enough:
                return
            if share_bytes is None or held[connection.host] > share:
                held[connection.host] -= connection.taken_bytes
                self._close(server, connection)

    def _close(self, server: ThriftServer, connection: Connection) -> None:
        self._limited_log.note(
            "connection_closed_for_memory",
            service=server.service,
            client=connection.address,
            held_bytes=connection.held_bytes,
            doing=connection.doing,
        )
        server.close_for_memory(connection)

    def _favour_some(self) -> None:
        """Let as many unfinished frames arrive as there is room for, the oldest first: they end, and free memory."""
        budget = self.budget
        slowed = [
            (server, connection)
            for server, connection in self._connections()
            if connection.intake.partial_since is not None and connection.intake.unread_bytes > INPUT_BYTES_SLOWED
        ]
        slowed.sort(key=lambda pair: pair[1].intake.partial_since or 0.0)
        room = budget.begins(Pressure.CLOSING) - budget.used
        for server, connection in slowed:
            room -= server.limits.frame_bytes_max
            # There is always room for one: the last eighth of the ceiling is for what is under way.
            connection.favour(room >= 0 or connection is slowed[0][1])

    def _connections(self) -> list[Served]:
        return [(server, each) for server in self._servers for each in server.connections]

    def _changed(self, old: Pressure, new: Pressure) -> None:
        """Count and note the measures that begin; let connections continue that an ended measure held back."""
        for level in range(old + 1, new + 1):
            self._metrics.counter(MEASURES, Pressure(level).name.lower()).add()
        self._metrics.counter(LEVEL).value = int(new)
        self._limited_log.note(
            "memory_pressure",
            pressure=new.name.lower(),
            was=old.name.lower(),
            held_bytes=self.budget.used,
            max_bytes=self.budget.limit,
        )
        if new < old:
            self._scheduler.call_soon(self._go_on)

    def _go_on(self) -> None:
        level = self.budget.level
        if level < Pressure.SLOWED:
            for _, connection in self._connections():
                connection.favour(False)
        if level < Pressure.REFUSING:
            for group in list(self._groups()):
                group.go_on()


Client = tuple[str, str] | None
Served = tuple[ThriftServer, Connection]


def _client_of(connection: Connection) -> Client:
    """Who shares with others (`limits.share`): a kind and a name; None, for all, without shares."""
    quota = connection.quota
    if quota is None or quota.share is None or quota.client is None:
        return None
    return quota.client.kind, quota.client.name


def _held_by_client(connections: Iterable[Connection]) -> Mapping[Client, int]:
    """Return the bytes that all connections of each client hold; 0 for those who do not share."""
    held: Counter[Client] = Counter({None: 0})
    for connection in connections:
        client = _client_of(connection)
        if client is not None:
            held[client] += connection.held_bytes
    return held


def _weight(connection: Connection, now: float) -> float:
    """How much a connection held and for how long, in byte-seconds: a slow peer weighs more than a large call."""
    since = min(
        now if connection.intake.partial_since is None else connection.intake.partial_since,
        now if connection.outbox.stuck_since is None else connection.outbox.stuck_since,
    )
    return connection.held_bytes * (1.0 + now - since)
