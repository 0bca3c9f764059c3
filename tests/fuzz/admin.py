"""Target `sign_in`: any bytes as a browser sends them to the admin port: a form, a cookie, a header, a request.

Nobody becomes somebody by bytes that the node has not given out: no session is begun without the token, and nothing
that needs a right is answered without token or session. Whatever comes is answered with a status, and by no fault.
"""

from __future__ import annotations

import asyncio
import functools
import re
from typing import Any
from urllib.parse import unquote_to_bytes

from aiohttp import web

from broker.runtime.bundle import runtime_of
from broker.runtime.rate_limited_log import RateLimitedLog
from conf.sections.access import AccessConfig, AccessRule
from conf.sections.access_files import AccessFiles, Signature, StoredToken
from conf.sections.admin import AdminConfig
from proxy.access.access import Access
from proxy.access.audit import Audit
from proxy.access.tokens import made
from proxy.admin.console.rates import SecondRates
from proxy.admin.console.shell import Console
from proxy.admin.entry.gate import SECONDS_EACH, AdminGate
from proxy.admin.routes import Routes
from proxy.admin.server import Unreadable
from proxy.operate.changes.desk import AdminToken
from pyddmq.testing import ManualClock, SimDisk
from tests.admin_node import busy_node

_ID, TOKEN, _DIGEST = made(bytes(range(40)))
_SECRET = bytes(range(32))
SESSION = _SECRET.hex()
_STORED = StoredToken(id=_ID, digest=_DIGEST, principal="anna", created_ms=0, expires_ms=1 << 50)
_CONFIG = AccessConfig(tokens="t", rules=[AccessRule(principals=["anna"], view=["*"], administer=True)])
_TURNS_MAX = 60
_STATUS = re.compile(rb"HTTP/1\.[01] (\d{3}) ")
_NO_FAULT = frozenset({100, 200, 303, 400, 401, 403, 404, 405, 413, 415, 417, 429, 431, 501, 503})

_HEAD = b"Host: localhost\r\nOrigin: http://localhost\r\n"
SEEDS = {
    "sign_in": {
        "form": b"\x00token=" + TOKEN.encode(),
        "wrong": b"\x00token=pyddmq_0000000000000000_00&token=x",
        "escaped": b"\x00token=%" + TOKEN.encode().hex("%").encode(),
        "cookie": b"\x01pyddmq-9813=" + SESSION.encode(),
        "cookies": b'\x01pyddmq-9813="x; a=b"; pyddmq-9813=\xff;;=',
        "header": b"\x02Bearer " + TOKEN.encode(),
        "basic": b"\x02Basic Og==",
        "whole": b"\x03POST /sign-out HTTP/1.1\r\n" + _HEAD + b"Content-Length: 0\r\n\r\n",
        "chunks": b"\x03POST /sign-in HTTP/1.1\r\n"
        + _HEAD
        + b"Content-Type: application/x-www-form-urlencoded; charset=utf-7\r\nTransfer-Encoding: chunked\r\n\r\n"
        + b"6\r\ntoken=\r\n0\r\n\r\n",
        "parts": b"\x03POST /sign-in HTTP/1.1\r\n"
        + _HEAD
        + b"Content-Type: multipart/form-data; boundary=b\r\nContent-Length: 55\r\n\r\n"
        + b'--b\r\nContent-Disposition: form-data; name="token"\r\n\r\nx',
    }
}


class _Files:
    """What stands in no file."""

    def read(self, config: AccessConfig) -> AccessFiles:
        return AccessFiles(tokens={_ID: _STORED}, keys={})

    def signature(self, config: AccessConfig) -> Signature:
        return ()


class _Pipe(asyncio.Transport):
    """A connection of the loopback that keeps what is written to it."""

    def __init__(self) -> None:
        super().__init__()
        self.written = bytearray()
        self.closing = False

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return {"peername": ("127.0.0.1", 5000), "sockname": ("127.0.0.1", 9813)}.get(name, default)

    def write(self, data: Any) -> None:
        self.written += data

    def writelines(self, list_of_data: Any) -> None:
        for each in list_of_data:
            self.written += each

    def is_closing(self) -> bool:
        return self.closing

    def close(self) -> None:
        self.closing = True

    def abort(self) -> None:
        self.closing = True

    def is_reading(self) -> bool:
        return True

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass


class _Port:
    """An admin port without sockets, which many inputs share."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.clock = ManualClock(1_760_000_000_000)
        node = busy_node()
        self.limited_log = node.limited_log
        access = Access(_CONFIG, clock=self.clock, limited_log=RateLimitedLog(self.clock), files=_Files())
        audit = Audit(runtime_of(SimDisk(), self.clock), AdminConfig)
        audit.open("/data")
        node.clock = self.clock  # it moves
        self.gate = AdminGate(
            node,
            "127.0.0.1",
            AdminToken(lambda: None),
            access=access,
            audit=audit,
            settings=AdminConfig,
            random_bytes=lambda _: _SECRET,
        )
        console = Console(
            node,
            SecondRates(node, self.loop),
            audit=audit,
            settings=AdminConfig,
            random_bytes=lambda _: _SECRET,
            token=AdminToken(lambda: None),
        )
        routes = Routes(node, self.gate, audit, loop_name="fuzz", console=console)
        logger = Unreadable(node)
        self.runner = web.AppRunner(routes.application(()), access_log=None, logger=logger)
        self.loop.run_until_complete(self.runner.setup())

    def answer(self, data: bytes) -> bytes:
        """Send bytes over a connection of their own; returns what is answered."""
        # Each input has its tries.
        self.clock.advance(SECONDS_EACH)
        return self.loop.run_until_complete(self._answer(data))

    async def _answer(self, data: bytes) -> bytes:
        assert self.runner.server is not None
        protocol, pipe = self.runner.server(), _Pipe()
        protocol.connection_made(pipe)
        protocol.data_received(data)
        for _ in range(_TURNS_MAX):
            await asyncio.sleep(0)
        protocol.connection_lost(None)
        for _ in range(4):
            await asyncio.sleep(0)
        return bytes(pipe.written)


@functools.cache
def _port() -> _Port:
    return _Port()


def _request(data: bytes) -> bytes:
    kind, rest = data[:1], data[1:]
    if kind == b"\x00":
        form = b"Content-Type: application/x-www-form-urlencoded\r\nContent-Length: %d\r\n\r\n" % len(rest)
        return b"POST /sign-in HTTP/1.1\r\n" + _HEAD + form + rest
    if kind in (b"\x01", b"\x02"):
        name = b"Cookie: " if kind == b"\x01" else b"Authorization: "
        return b"GET /api/stats HTTP/1.1\r\n" + _HEAD + name + rest.replace(b"\r\n\r\n", b"") + b"\r\n\r\n"
    return rest


def sign_in(data: bytes) -> None:
    """Take these bytes, from the second on, as a form, a cookie, a header or a whole request, as the first says."""
    port = _port()
    faults = port.limited_log.faults
    written = port.answer(_request(data))
    assert port.limited_log.faults == faults, port.limited_log.last_fault
    statuses = {int(each) for each in _STATUS.findall(written)}
    assert statuses <= _NO_FAULT, statuses
    plain = unquote_to_bytes(data.replace(b"+", b" "))
    knows_token = TOKEN.encode() in plain or TOKEN.encode() in data
    knows_session = SESSION.encode() in data
    assert port.gate.sessions is not None
    if len(port.gate.sessions):
        assert knows_token, "a session begins by a token alone"
        port.gate.sessions.end(SESSION)
    if b'"uptimeSeconds"' in written or b'"entriesTotal"' in written or b'"groupsTotal"' in written:
        assert knows_token or knows_session, "what needs a right is told by a token or a session alone"
    # What is no HTTP at all is said back to who sent it.
    assert statuses == {400} or TOKEN[24:].encode() not in written, "a token is never said"
