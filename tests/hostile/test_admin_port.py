"""The admin port against slow bodies, bound names and odd headers, over real sockets."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, suppress

import pytest
import structlog

from proxy.admin import guard as guard_module
from proxy.admin.routes import REFUSED
from proxy.admin.server import AdminServer
from proxy.operate.changes.desk import AdminToken
from tests.admin_node import busy_node
from tests.integration.proxy.admin.test_admin_messages import filled
from tests.patient import PATIENCE_SECONDS

PAGES = [
    "/",
    "/api/topics",
    "/api/groups",
    "/api/groups/stuck",
    "/api/offsets",
    "/api/delays",
    "/api/transactions",
    "/api/timers",
    "/api/messages?topic=permits",
    "/api/dead-letters?group=billing",
    "/api/stats",
]
OPEN = ["/livez", "/healthz", "/readyz", "/metrics"]

Ask = Callable[..., Awaitable[bytes]]


def serve(
    scenario: Callable[[int, Ask], Awaitable[None]], *, token: str | None = None, counted: list[int] | None = None
) -> None:
    """Let a scenario talk to an admin port with bytes of its own; `ask` returns the answer, b"" for a closed one."""

    async def run() -> None:
        node = busy_node()
        node.messages = filled()
        server = AdminServer(node, token=AdminToken(lambda: token))
        await server.start("127.0.0.1", 0)
        _, port = server.address

        async def ask(path: str, *headers: bytes, host: str = "localhost") -> bytes:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            lines = (f"GET {path} HTTP/1.1".encode(), f"Host: {host}".encode(), b"Connection: close", *headers)
            writer.write(b"\r\n".join(lines) + b"\r\n\r\n")
            try:
                return await asyncio.wait_for(reader.read(), PATIENCE_SECONDS)
            except ConnectionResetError:
                return b""
            finally:
                writer.close()

        try:
            await scenario(port, ask)
        finally:
            await server.stop()
        if counted is not None:
            counted.append(node.metrics.value(REFUSED, "400"))

    asyncio.run(run())


def status(answer: bytes) -> int:
    """Return the status of an answer."""
    return int(answer.split(b" ", 2)[1])


def test_liveness_is_answered_while_slow_bodies_hold_every_place(monkeypatch: pytest.MonkeyPatch) -> None:
    """As many POSTs as there are places, whose bodies never come: health checks are answered, the rest is not."""
    monkeypatch.setattr(guard_module, "CONNECTIONS_MAX", 8)

    async def scenario(port: int, ask: Ask) -> None:
        async with AsyncExitStack() as held:
            for _ in range(8):
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
                held.callback(writer.close)
                head = b"POST /api/reload HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                writer.write(head + b"Expect: 100-continue\r\nContent-Length: 100\r\n\r\n{")
                # The interim answer says that the head has been read.
                assert await asyncio.wait_for(reader.readline(), PATIENCE_SECONDS) == b"HTTP/1.1 100 Continue\r\n"
            assert await ask("/api/stats") == b""
            for path in ("/livez", "/healthz", "/readyz"):
                assert status(await ask(path)) in (200, 503), path

    serve(scenario)


def test_slow_body_is_closed_and_its_place_is_free(monkeypatch: pytest.MonkeyPatch) -> None:
    """A body has its time; the change that it was for has not happened."""
    monkeypatch.setattr(guard_module, "BODY_SECONDS_MAX", 0.05)

    async def scenario(port: int, ask: Ask) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"POST /api/reload HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{")
        with suppress(ConnectionResetError):
            assert await asyncio.wait_for(reader.read(), PATIENCE_SECONDS) == b""
        writer.close()
        assert status(await ask("/api/stats")) == 200

    serve(scenario)


def test_pages_are_not_shown_under_a_foreign_name() -> None:
    """A name that somebody's page bound to loopback reads nothing; health and metrics answer under any name."""

    async def scenario(_: int, ask: Ask) -> None:
        for path in PAGES:
            for answer in (await ask(path, host="evil.example"), await ask(path, b"Origin: http://evil.example")):
                assert status(answer) == 403, path
                assert b"customer" not in answer
            assert status(await ask(path)) != 403, path
            assert status(await ask(path, host="127.0.0.1:9813")) != 403, path
        for path in OPEN:
            assert status(await ask(path, host="node-1.internal:9813")) in (200, 503), path

    serve(scenario)


def test_bodies_of_messages_need_the_token() -> None:
    """With a token configured, messages without it are shown with body=none alone."""

    async def scenario(_: int, ask: Ask) -> None:
        path = "/api/messages?topic=permits"
        for more in ("", "&body=cut", "&body=whole", "&body="):
            assert status(await ask(path + more)) == 401, more
        answer = await ask(path + "&body=none")
        assert status(answer) == 200
        assert b'"id\\": 1' not in answer
        answer = await ask(path, b"Authorization: Bearer secret")
        assert status(answer) == 200
        assert b"id" in answer

    serve(scenario, token="secret")


def test_authorization_of_any_bytes_is_refused_and_no_fault() -> None:
    """What is not UTF-8 is no token: 401, as any other wrong one."""

    async def scenario(_: int, ask: Ask) -> None:
        for given in (b"Bearer \xff\xfe", b"\xff", b"Bearer s\xe9cret", b"Bearer " + "sécret".encode()):
            answer = await ask("/api/messages?topic=permits", b"Authorization: " + given)
            assert status(answer) == 401, given

    serve(scenario, token="secret")


def test_what_is_no_request_is_counted_and_its_bytes_stand_in_no_log(caplog: pytest.LogCaptureFixture) -> None:
    """A token with one wrong character among them; one line a minute, however many come."""
    counted: list[int] = []

    async def scenario(_: int, ask: Ask) -> None:
        for _ in range(5):
            answer = await ask("/api/stats", b"Authorization: Bearer pyddmq_secret\x01part")
            assert status(answer) == 400

    with structlog.testing.capture_logs() as lines:
        serve(scenario, counted=counted)
    assert counted == [5]
    reported = [each for each in lines if each["event"] == "admin_request_unreadable"]
    assert [each["count"] for each in reported] == [1]
    assert reported[0]["error"] in ("BadHttpMessage", "InvalidHeader"), "one of them, by the parser that is there"
    assert "pyddmq_secret" not in str(lines) + caplog.text
