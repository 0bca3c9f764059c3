"""The network edge: where listening sockets come from.

A node is handed a `Network`; `AsyncioNetwork` is the real one, `pyddmq.testing` has the simulated one. Connections are
asyncio transports and protocols in both, so that nothing above this module knows which it runs on.
"""

from __future__ import annotations

import asyncio
import errno
import fcntl
import os
import resource
import select
import socket
import sys
import termios
from collections.abc import Callable
from ipaddress import IPv6Address
from typing import Protocol

DESCRIPTORS_UNBOUNDED = 1 << 31
DESCRIPTORS_KEPT_MAX = 1024
_RDHUP = getattr(select, "POLLRDHUP", 0)
_TCP_INFO_BYTES = 256
_BYTES_ACKED_AT = 120
"""Where `tcpi_bytes_acked` is in Linux's struct tcp_info, since 4.1."""
_KEEPALIVE = ((socket.TCP_KEEPIDLE, 60), (socket.TCP_KEEPINTVL, 15), (socket.TCP_KEEPCNT, 4))
"""A peer that vanished without a word is noticed after two minutes; sockets take this from the one they came from."""


def raise_descriptor_limit() -> int:
    """Raise this process's soft limit of open files to its hard one.

    Returns:
        From which descriptor on no connection is accepted: a part is kept for the files of the store.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
            soft = hard
        except (OSError, ValueError):
            pass  # Some systems know no limit for the process and have one all the same.
    if soft == resource.RLIM_INFINITY:
        return DESCRIPTORS_UNBOUNDED
    return soft - min(DESCRIPTORS_KEPT_MAX, soft // 2)


def address_text(host: str, port: int) -> str:
    """Return `host:port`; an IPv6 host is in brackets, as in a URL."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def host_of(peer: str) -> str:
    """Return the address of a peer in one form: one of IPv4 that came mapped into IPv6 (`::ffff:10.0.0.1`) as IPv4's.

    A socket that listens on `::` sees both kinds; a bound or a rule for an address must hold for either.
    """
    if "." in peer and ":" in peer:
        mapped = IPv6Address(peer.partition("%")[0]).ipv4_mapped
        if mapped is not None:
            return str(mapped)
    return peer


class ListenError(Exception):
    """A port cannot be listened on; the text says which and what to do."""

    def __init__(self, host: str, port: int, error: OSError) -> None:
        self.host = host
        self.port = port
        self.taken = error.errno == errno.EADDRINUSE
        if self.taken:
            text = (
                f"port {port} on {host} is in use; stop the other process, or choose another port (0 "
                "selects a free one)"
            )
        elif error.errno == errno.EACCES:
            text = f"port {port} on {host} needs privileges; choose a port of 1024 or above"
        elif error.errno == errno.EADDRNOTAVAIL:
            text = f"host {host} is not an address of this machine; use 127.0.0.1, 0.0.0.0 or one of its own addresses"
        elif error.errno is None or error.errno <= 0:
            # A host name that does not resolve: the resolver has numbers of its own, below 0.
            text = f"host {host} has no address ({error.strerror or error}); use an address of this machine"
        else:
            text = f"cannot listen on {address_text(host, port)}: {os.strerror(error.errno)}"
        super().__init__(text)


class Listener(Protocol):
    """One listening socket."""

    @property
    def address(self) -> tuple[str, int]:
        """Host and port that it listens on; the port is real where 0 was asked for."""
        ...

    def close(self) -> None:
        """Accept no further connections; those that are open stay."""
        ...


class Peer(Protocol):
    """What the system knows of the other end of a connection, asked without waiting for the loop to hear of it."""

    def gone(self) -> bool:
        """Whether it has closed, or will send no more; its last bytes and that end may still be unread here."""
        ...

    def unread(self) -> int | None:
        """Bytes that have arrived from it and were not read yet; None where that is not known."""
        ...

    def acknowledged(self) -> int | None:
        """Bytes of what was sent that its system has acknowledged, one more at most; None where that is not known."""
        ...


class Network(Protocol):
    """Makes listeners, and knows what the system knows of peers."""

    def peer(self, transport: asyncio.BaseTransport) -> Peer:
        """Return the other end of a connection that one of the listeners accepted; valid until it is closed."""
        ...

    async def listen(self, factory: Callable[[], asyncio.Protocol], host: str, port: int, *, backlog: int) -> Listener:
        """Listen on `host:port` (0: any free port) and make a protocol of `factory` for each connection.

        Raises:
            ListenError: The address cannot be had.
        """
        ...


class SocketPeer:
    """The other end of a TCP socket; its answers come from the kernel, in a microsecond."""

    __slots__ = ("_descriptor", "_poll")

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._poll: select.poll | None = None

    def gone(self) -> bool:
        """See `Peer.gone`."""
        poll = self._poll
        if poll is None:
            poll = self._poll = select.poll()
            # An error and a hang-up are reported in any case.
            poll.register(self._descriptor, _RDHUP)
        return bool(poll.poll(0))

    def unread(self) -> int | None:
        """See `Peer.unread`."""
        try:
            reported = fcntl.ioctl(self._descriptor, termios.FIONREAD, bytes(4))
        except OSError:
            return None
        return int.from_bytes(reported, sys.byteorder)

    def acknowledged(self) -> int | None:
        """See `Peer.acknowledged`."""
        try:
            with socket.fromfd(self._descriptor, socket.AF_INET, socket.SOCK_STREAM) as same:
                reported = same.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _TCP_INFO_BYTES)
        except (OSError, AttributeError):
            return None
        if len(reported) < _BYTES_ACKED_AT + 8:
            return None
        return int.from_bytes(reported[_BYTES_ACKED_AT : _BYTES_ACKED_AT + 8], sys.byteorder)


class NoPeer:
    """A peer of whom nothing is known."""

    def gone(self) -> bool:
        """Say no: the loop will report it."""
        return False

    def unread(self) -> int | None:
        """Say that it is not known."""
        return None

    def acknowledged(self) -> int | None:
        """Say that it is unknown."""
        return None


class _ServerListener:
    """A listener on an asyncio server."""

    def __init__(self, server: asyncio.AbstractServer, address: tuple[str, int]) -> None:
        self._server = server
        self.address = address

    def close(self) -> None:
        self._server.close()


class AsyncioNetwork:
    """Real sockets on the running event loop."""

    def peer(self, transport: asyncio.BaseTransport) -> Peer:
        """Return the other end of an accepted connection; see `Network.peer`."""
        return SocketPeer(transport.get_extra_info("socket").fileno())

    async def listen(self, factory: Callable[[], asyncio.Protocol], host: str, port: int, *, backlog: int) -> Listener:
        """Listen on a TCP port; see `Network.listen`."""
        loop = asyncio.get_running_loop()
        try:
            server = await loop.create_server(factory, host, port, backlog=backlog)
        except OSError as error:
            raise ListenError(host, port, error) from error
        for listening in server.sockets:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            for option, value in _KEEPALIVE:
                listening.setsockopt(socket.IPPROTO_TCP, option, value)
        bound = server.sockets[0].getsockname()
        return _ServerListener(server, (bound[0], bound[1]))


def send_datagram(address: str, data: bytes) -> bool:
    """Send one datagram to a Unix socket, without waiting; False when no process takes it.

    Args:
        address: Path of the socket; `@` in front names an abstract one.
        data: Its bytes.
    """
    target = "\0" + address[1:] if address.startswith("@") else address
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
        sender.setblocking(False)
        try:
            sender.sendto(data, target)
        except OSError:
            return False
    return True
