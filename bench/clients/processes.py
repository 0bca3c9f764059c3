"""What runs in the clients' processes: publish, pull and acknowledge, and the two ends of the latency measurement."""

from __future__ import annotations

import gc
import multiprocessing
import os
import select
import ssl
import time
import traceback
from collections import deque
from collections.abc import Callable, Generator, Sequence
from multiprocessing.connection import Connection as Pipe
from typing import Any, Literal, NamedTuple

from bench.clients.load import KEYS, Connection, NodeConnection, RedisConnection, body_of, pull, stamp_of
from bench.clients.nats import NatsConnection
from bench.clients.remoting import RocketConnection
from bench.servers.processes import BenchError

Kind = Literal["pyddmq", "redis", "nats", "nats, synced", "rocketmq"]
"""Servers; NATS syncs each two minutes, or each write."""
CONNECTIONS: dict[Kind, Callable[[tuple[str, int], bytes, bytes, int], Connection]] = {
    "pyddmq": NodeConnection,
    "redis": RedisConnection,
    "nats": NatsConnection,
    "nats, synced": NatsConnection,
    "rocketmq": RocketConnection,
}
_END = object()
PULL_LINGER_MS = 2_000
QUIET_PULLS_MAX = 60
"""Empty pulls in a row (each as long as the linger) after which a consumer gives up."""
ANSWER_SECONDS_MAX = 120.0


class Target(NamedTuple):
    """Where a client goes: the server's kind, its two ports (equal for rivals), topic (stream) and group.

    With `ca`, the file of a CA, by TLS.
    """

    kind: Kind
    publish_address: tuple[str, int]
    pull_address: tuple[str, int]
    topic: bytes
    group: bytes
    ca: str | None = None

    def connect(self, *, pull: bool, batch: int = 1, queue: int = 0) -> Connection:
        """Open a connection for publishing or for pulling; `queue` is its own, where a server has such."""
        address = self.pull_address if pull else self.publish_address
        connection = CONNECTIONS[self.kind](address, self.topic, self.group, batch)
        if isinstance(connection, RocketConnection):
            connection.queue = queue
        if self.ca is not None:
            context = ssl.create_default_context(cafile=self.ca)
            connection.socket = context.wrap_socket(connection.socket, server_hostname=address[0])
        return connection


def publish_load(target: Target, batch: int, count: int, clients: int = 1) -> float:
    """Publish `count` messages in batches, each client one request at a time; returns the seconds that it took."""
    connections = [target.connect(pull=False, batch=batch, queue=queue) for queue in range(clients)]
    # Encoded now, where a connection keeps what it encoded.
    for number in range(0, KEYS * batch, batch):
        connections[0].request(number)
    firsts = iter(range(0, clients * batch, batch))

    def client(connection: Connection) -> Generator[None, None, None]:
        # Clients take turns with the keys: none is in all requests of a moment.
        for number in range(next(firsts), count - count % (clients * batch), clients * batch):
            connection.socket.sendall(connection.request(number))
            yield
            while not connection.published():
                yield
        connection.socket.close()

    return _all(connections, client)


def pull_load(target: Target, batch: int, count: int, clients: int = 1) -> float:
    """Pull and acknowledge `count` messages; returns the seconds from the first pull to the last acknowledgement.

    Raises:
        BenchError: The server ran out of messages before.
    """
    connections = [target.connect(pull=True, queue=queue) for queue in range(clients)]

    def client(connection: Connection) -> Generator[None, None, None]:
        left, quiet = count // clients, 0
        while left > 0:
            connection.ask(min(batch, left), PULL_LINGER_MS)
            yield
            while (bodies := connection.pulled()) is None:
                yield
            left -= len(bodies)
            quiet = 0 if bodies else quiet + 1
            if quiet == QUIET_PULLS_MAX:
                raise BenchError(f"{left} of {count // clients} messages did not come")
        connection.finish()

    return _all(connections, client)


def _all(connections: Sequence[Connection], client: Callable[[Connection], Generator[None, None, None]]) -> float:
    """Run clients until all have ended; each goes on when its server has sent something. Returns the seconds.

    Raises:
        BenchError: A server sends nothing for too long.
    """
    poller = select.epoll()
    running: dict[int, Generator[None, None, None]] = {}
    begun = time.perf_counter()
    for connection in connections:
        each = client(connection)
        if next(each, _END) is not _END:
            running[connection.socket.fileno()] = each
            poller.register(connection.socket, select.EPOLLIN)
    while running:
        ready = poller.poll(ANSWER_SECONDS_MAX)
        if not ready:
            raise BenchError(f"{len(running)} clients wait for an answer")
        for number, _ in ready:
            if next(running[number], _END) is _END:
                # Its socket is closed, and no more polled.
                del running[number]
    poller.close()
    return time.perf_counter() - begun


def open_loop_publish(target: Target, rate: int, count: int, lead_ns: int) -> list[int]:
    """Publish one message at a time on a schedule, whether or not earlier ones are answered.

    Args:
        target: Where to.
        rate: Messages per second.
        count: How many.
        lead_ns: How long after connecting the first is due, so that the other client is there by then.

    Returns:
        Nanoseconds from when each publish was due to its reply.
    """
    connection = target.connect(pull=False)
    begin_ns = time.monotonic_ns() + lead_ns
    waiting: deque[int] = deque()
    taken: list[int] = []
    sent = 0
    while len(taken) < count:
        due = begin_ns + sent * 1_000_000_000 // rate
        wait = max(0.0, (due - time.monotonic_ns()) / 1e9) if sent < count else ANSWER_SECONDS_MAX
        readable, _, _ = select.select([connection.socket], [], [], wait)
        if readable:
            for _ in range(connection.published()):
                taken.append(time.monotonic_ns() - waiting.popleft())
        elif sent == count:
            raise BenchError(f"{count - len(taken)} publishes were not answered")
        if sent < count and time.monotonic_ns() >= due:
            connection.socket.sendall(connection.one(body_of(due, sent), sent))
            waiting.append(due)
            sent += 1
    connection.socket.close()
    return taken


def parked_pull(target: Target, count: int) -> list[int]:
    """Pull with a long linger until `count` messages came; returns nanoseconds from when each was due to be published.

    Raises:
        BenchError: They did not all come.
    """
    connection = target.connect(pull=True)
    taken: list[int] = []
    quiet = 0
    while len(taken) < count:
        bodies = pull(connection, 32, PULL_LINGER_MS)
        now = time.monotonic_ns()
        taken.extend(now - stamp_of(body)[0] for body in bodies)
        quiet = 0 if bodies else quiet + 1
        if quiet == QUIET_PULLS_MAX:
            raise BenchError(f"{count - len(taken)} of {count} messages did not come")
    connection.finish()
    return taken


class ClientProcess:
    """A function of this module running in a process of its own on one core."""

    def __init__(self, core: int, function: Callable[..., Any], *arguments: object) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, other = context.Pipe(duplex=False)
        self._process = context.Process(target=_run, args=(other, core, function, arguments), daemon=True)
        self._process.start()
        other.close()

    @property
    def running(self) -> bool:
        """Whether there is no result yet."""
        return not self._pipe.poll()

    def result(self) -> Any:
        """Wait for what the function returns.

        Raises:
            BenchError: It raised; with its traceback.
        """
        try:
            fine, value = self._pipe.recv()
        except EOFError as error:
            raise BenchError("a client process died") from error
        self._process.join()
        if not fine:
            raise BenchError(f"a client failed:\n{value}")
        return value

    def stop(self) -> None:
        """End it, without a result."""
        self._process.terminate()
        self._process.join()
        self._pipe.close()


def _run(pipe: Pipe, core: int, function: Callable[..., Any], arguments: tuple[object, ...]) -> None:
    os.sched_setaffinity(0, {core})
    gc.disable()
    try:
        pipe.send((True, function(*arguments)))
    except Exception:
        pipe.send((False, traceback.format_exc()))
