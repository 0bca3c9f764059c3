"""Hostile clients as a process of their own: `python -m tests.hostile.attacker NODE.json KIND COUNT ...`.

It prints a line when everything it was told is open and has sent what it sends at first, then goes on (a byte at a
time where that is the attack; new connections for those that were closed) until its standard input ends, and then
prints what it saw as JSON.
"""

from __future__ import annotations

import contextlib
import json
import resource
import selectors
import socket
import ssl
import struct
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import cycle

from tests.hostile.bombs import bombs
from tests.hostile.floods import FLOODS, bulk_pull, post
from tests.tried import tried

CONNECT_SECONDS = 240.0
PULSE_SECONDS = 0.02
BYTES_PER_PULSE = 200
"""Slow senders that get their next byte per pulse; all of them take turns."""
REOPENED_PER_PULSE = 5

Opening = Callable[[int], bytes]


def idle(_: int) -> bytes:
    """Send nothing."""
    return b""


def drip(number: int) -> bytes:
    """Send the first byte of a frame; the others follow one by one."""
    return DRIPPED[:1] if number % 2 else b""


DRIPPED = struct.pack(">i", 60_000) + b"\x80\x01\x00\x01" + bytes(60_000)

_BOMBS = bombs()
_ANY_CERTIFICATE = ssl.create_default_context()
_ANY_CERTIFICATE.check_hostname = False
_ANY_CERTIFICATE.verify_mode = ssl.CERT_NONE


def bomb(number: int) -> bytes:
    """Send one of the length bombs."""
    return _BOMBS[number % len(_BOMBS)]


def fill(_: int) -> bytes:
    """Send most of a large frame and stop."""
    return struct.pack(">i", 4_900_000) + bytes(4_000_000)


def partial(_: int) -> bytes:
    """Send as much of a frame as is read whatever the pressure, and stop."""
    return struct.pack(">i", 4_900_000) + bytes(60_000)


def name(_: int) -> bytes:
    """Send a pull of a group whose name has megabytes that are not UTF-8."""
    return NAME


NAME = bulk_pull(b"\xff" * 4_800_000)


def unread(_: int) -> bytes:
    """Send pulls whose replies nothing reads."""
    return UNREAD


UNREAD = bulk_pull(b"bulk") * 3


def slow_header(_: int) -> bytes:
    """Begin an HTTP request and never end it."""
    return b"GET / HTTP/1.1\r\nHost: localhost\r\nX-Slow: "


KINDS: dict[str, tuple[Opening, bool]] = {
    "idle": (idle, False),
    "drip": (drip, True),
    "bomb": (bomb, False),
    "fill": (fill, False),
    "partial": (partial, False),
    "name": (name, False),
    "unread": (unread, False),
    "unread_tls": (unread, False),
    "sip": (unread, False),
    "slow_header": (slow_header, True),
    "slow_post": (post, False),
    **dict.fromkeys(FLOODS, (idle, False)),
}
"""What each kind sends first, and whether it then sends a byte at a time."""


READ_BY_NONE = frozenset({"unread", "unread_tls", "sip"})
"""Kinds whose clients do not read what they get."""
ON_EVERY = "@"
"""Behind a kind: its clients go to every port in turn, whichever it is meant for."""
NOTED = 4
"""So many clients of a kind are written down: they go to all ports that it goes to."""
SIP_SECONDS = 2.9
"""How often those of the kind `sip` read a byte."""


def port_of(kind: str, number: int) -> str:
    """Return which port a client of a kind goes to."""
    if kind == "unread_tls":
        return "consumerTls"
    if kind in FLOODS or kind in READ_BY_NONE or kind == "name":
        return "consumer"
    return "admin" if kind in ("slow_header", "slow_post") else ("producer", "consumer")[number % 2]


class Attacker:
    """Many sockets of some kinds against the ports of one node."""

    def __init__(self, ports: dict[str, tuple[str, int]]) -> None:
        self.ports = ports
        self.counts: Counter[str] = Counter()
        self.selector = selectors.DefaultSelector()
        self.dripping: dict[socket.socket, int] = {}
        self.slow_text: dict[socket.socket, bool] = {}
        self.to_open: list[tuple[str, int, str]] = []
        self.floods: dict[str, bytes] = {}
        self.flooding: dict[socket.socket, tuple[str, int]] = {}
        self.unread: list[socket.socket] = []
        self.sipping: list[socket.socket] = []
        self.sips_at = time.monotonic() + SIP_SECONDS
        self.finishing: dict[socket.socket, tuple[bytes, int]] = {}

    def open(self, kind: str, number: int, port: str) -> None:
        """Connect and send what this kind sends first."""
        opening, drips = KINDS[kind]
        try:
            client = socket.create_connection(self.ports[port], timeout=CONNECT_SECONDS)
        except OSError as error:
            self.counts[f"connect_{type(error).__name__}"] += 1
            return
        if kind == "unread_tls":
            try:
                client = _ANY_CERTIFICATE.wrap_socket(client)
            except OSError as error:
                self.counts[f"handshake_{type(error).__name__}"] += 1
                return
        client.setblocking(False)
        self.counts[f"{kind}_opened"] += 1
        if self.counts[f"{kind}_opened"] <= NOTED:
            tried("hostile", kind, operations=[port], states=["a full node"])
        if kind in READ_BY_NONE:
            self.unread.append(client)
            if kind == "sip":
                self.sipping.append(client)
        else:
            self.selector.register(client, selectors.EVENT_READ, (kind, number, port))
        self._send(client, opening(number))
        if kind in FLOODS:
            self.floods.setdefault(kind, FLOODS[kind]())
            self.flooding[client] = kind, 0
        if drips:
            self.dripping[client] = 1
            self.slow_text[client] = kind == "slow_header"

    def _send(self, client: socket.socket, data: bytes) -> None:
        try:
            if data:
                sent = client.send(data)
                if sent < len(data) == len(NAME):
                    self.finishing[client] = data, sent
        except (BlockingIOError, InterruptedError):
            self.counts["blocked"] += 1
        except OSError:
            self.counts["send_failed"] += 1

    def _flood(self) -> None:
        """Send on, over each connection as much as it takes."""
        for client, (kind, at) in list(self.flooding.items()):
            data = self.floods[kind]
            try:
                sent = at + client.send(memoryview(data)[at:])
            except (BlockingIOError, InterruptedError):
                continue
            except OSError:
                self.counts["send_failed"] += 1
                continue
            if sent == len(data):
                self.counts[f"{kind}_sent"] += 1
                sent = 0
            self.flooding[client] = kind, sent

    def _finish(self) -> None:
        """Send what is left of long frames; the next one follows its answer."""
        for client, (data, at) in list(self.finishing.items()):
            try:
                sent = at + client.send(memoryview(data)[at:])
            except (BlockingIOError, InterruptedError):
                continue
            except OSError:
                sent = len(data)
            self.finishing[client] = data, sent
            if sent == len(data):
                self.counts["names"] += 1
                del self.finishing[client]

    def pulse(self, turns: Iterator[int]) -> None:
        """Read what came, reopen some of what was closed, and send the next bytes."""
        for key, _ in self.selector.select(PULSE_SECONDS):
            client = key.fileobj
            assert isinstance(client, socket.socket)
            try:
                data = client.recv(65_536)
            except OSError:
                data = b""
            kind, number, port = key.data
            if data:
                self.counts["answered"] += 1
                if kind == "name" and client not in self.finishing:
                    self._send(client, NAME)
                continue
            self.counts[f"{kind}_closed"] += 1
            self.selector.unregister(client)
            self.dripping.pop(client, None)
            self.slow_text.pop(client, None)
            self.flooding.pop(client, None)
            self.finishing.pop(client, None)
            client.close()
            if kind != "idle":
                self.to_open.append((kind, number, port))
        for kind, number, port in self.to_open[:REOPENED_PER_PULSE]:
            self.open(kind, number, port)
        del self.to_open[:REOPENED_PER_PULSE]
        self._flood()
        self._finish()
        if time.monotonic() >= self.sips_at:
            self.sips_at = time.monotonic() + SIP_SECONDS
            for client in self.sipping:
                with contextlib.suppress(OSError):
                    self.counts["sipped"] += len(client.recv(1))
        clients = list(self.dripping)
        for _ in range(min(BYTES_PER_PULSE, len(clients))):
            client = clients[next(turns) % len(clients)]
            at = self.dripping.get(client)
            if at is not None:
                self._send(client, b"x" if self.slow_text.get(client) else DRIPPED[at : at + 1])
                self.dripping[client] = at + 1


def main() -> None:
    """Do what the command line says until standard input ends."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    addresses: dict[str, str] = json.loads(sys.argv[1])
    ports: dict[str, tuple[str, int]] = {}
    for port_name in ("producer", "consumer", "admin", "consumerTls"):
        host, _, port = (addresses.get(port_name) or "").rpartition(":")
        if port:
            ports[port_name] = (host, int(port))
    attacker = Attacker(ports)
    turns, every = cycle(range(1 << 30)), cycle(ports)
    words = sys.argv[2:]
    for kind, count in zip(words[::2], words[1::2], strict=True):
        for number in range(int(count)):
            port_name = next(every) if kind.endswith(ON_EVERY) else port_of(kind, number)
            attacker.open(kind.removesuffix(ON_EVERY), number, port_name)
            if number % 500 == 499:
                attacker.pulse(turns)
    print(json.dumps(attacker.counts), flush=True)
    with selectors.DefaultSelector() as reported:
        reported.register(sys.stdin, selectors.EVENT_READ)
        while not reported.select(0):
            attacker.pulse(turns)
    print(json.dumps(attacker.counts), flush=True)


if __name__ == "__main__":
    main()
