"""The client of pushes over the simulated network, with a peer that sends given bytes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from random import Random
from typing import Any

import pytest
from yarl import URL

from actions.client_factories import Outside
from actions.http.client import INTERIM_MAX, LARGE_BYTES, Client, HttpReply, PushFailed
from actions.http.connection_options import HttpWish
from pyddmq.testing import NetworkFaults, SimNetwork, VirtualLoop
from tests.fakes.http import SimHttp, forget_connectors
from tests.insides import most_kept

HOST, PORT = "10.0.0.50", 8080
HOOK = URL(f"http://{HOST}:{PORT}/hook?a=1")
MAX = 1000
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
CLOSE = b""
CUT = b"\0cut"
THREE = HttpReply(200, b"ok!", {})


class Peer(asyncio.Protocol):
    """Answers each request with the next bytes; `CLOSE` closes instead, `CUT` after them. `later` follows unasked."""

    def __init__(self, answers: list[bytes], seen: list[bytes], later: bytes = b"") -> None:
        self._answers = answers
        self._later = later
        self._seen = seen
        self._data = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._data += data
        head, found, body = self._data.partition(b"\r\n\r\n")
        length = [line.partition(b":")[2] for line in head.split(b"\r\n") if line.lower().startswith(b"content-length")]
        if not found or (len(body) < int(length[0]) <= 2 * MAX if length else False):
            return
        self._seen.append(self._data)
        self._data = b""
        answer = self._answers.pop(0)
        if answer == CLOSE:
            self._transport.close()
        else:
            self._transport.write(answer.removesuffix(CUT))
            if answer.endswith(CUT):
                self._transport.close()
            if self._later:
                asyncio.get_running_loop().call_later(0.5, self._transport.write, self._later)


class Run:
    """What a story had.

    Attributes:
        seen: Requests, as they came.
        connections: How many were made.
    """

    def __init__(self) -> None:
        self.seen: list[bytes] = []
        self.connections = 0


def run(
    answers: Sequence[bytes],
    story: Callable[[Client], Awaitable[Any]],
    *,
    fragments: float = 0.0,
    keep: bool = True,
    later: bytes = b"",
) -> tuple[Any, Run]:
    """Return what a story returns, and what the peer saw."""
    loop, found, left = VirtualLoop(), Run(), list(answers)
    network = SimNetwork(loop, Random(1), NetworkFaults(fragment_share=fragments))

    def accept() -> Peer:
        found.connections += 1
        return Peer(left, found.seen, later)

    async def all_of_it() -> Any:
        await network.listen(accept, HOST, PORT, backlog=8)
        client = Client(Outside(http=SimHttp(network)), HttpWish(connections_max=4, keep=keep), MAX)
        try:
            return await story(client)
        finally:
            await client.close()

    try:
        return loop.run_task(all_of_it()), found
    finally:
        forget_connectors()


async def post(client: Client, body: bytes = b"body", method: str = "POST", url: URL = HOOK) -> HttpReply | str:
    """Send one request; a failure comes back as its text."""
    try:
        reply = await client.send(method, url, [("X-One", "1"), ("X-Two", "2")], body, 1000)
        return reply._replace(headers={})
    except PushFailed as failure:
        return str(failure)


def test_request_is_one_text_with_all_that_frames_it() -> None:
    """And two of them take one connection."""

    async def story(client: Client) -> list[HttpReply | str]:
        return [
            await post(client),
            await post(client, b"", "GET", URL(f"http://{HOST}:{PORT}")),
            await post(client, b""),
        ]

    answers, found = run([OK] * 3, story)
    assert answers == [HttpReply(200, b"ok", {})] * 3
    host = f"Host: {HOST}:{PORT}\r\nX-One: 1\r\nX-Two: 2\r\n"
    assert [each.decode() for each in found.seen] == [
        f"POST /hook?a=1 HTTP/1.1\r\n{host}Content-Length: 4\r\n\r\nbody",
        f"GET / HTTP/1.1\r\n{host}\r\n",
        f"POST /hook?a=1 HTTP/1.1\r\n{host}Content-Length: 0\r\n\r\n",
    ]
    assert found.connections == 1


@pytest.mark.parametrize("fragments", [0.0, 1.0])
@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nX: y\r\n\r\n" + OK, HttpReply(200, b"ok", {})),
        (b"HTTP/1.1 204 No Content\r\n\r\n", HttpReply(204, b"", {})),
        (b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n", HttpReply(101, b"", {})),
        (
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n1\r\n!\r\n0\r\n\r\n",
            THREE,
        ),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n" + b"x" * MAX, HttpReply(200, b"x" * MAX, {})),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 1001\r\n\r\n" + b"x" * 1001, "the reply has more than 1000 bytes"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 99999\r\n\r\n", "the reply has more than 1000 bytes"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 9999999999999999999\r\n\r\n", "the reply has more than 1000 bytes"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n7d0\r\n" + b"x" * 2000, "the reply has more than 1000"),
        (b"SSH-2.0-x\r\n\r\n", "HttpProcessingError: the reply is not valid HTTP"),
        (CLOSE, "ServerDisconnectedError: "),
    ],
)
def test_reply_is_read_whole_or_refused(answer: bytes, expected: HttpReply | str, fragments: float) -> None:
    """In one piece and byte by byte."""
    found, _ = run([answer], post, fragments=fragments)
    if isinstance(expected, HttpReply):
        assert found == expected
    else:
        assert isinstance(found, str)
        assert found.startswith(expected)


@pytest.mark.parametrize("method", ["GET", "POST"])
@pytest.mark.parametrize(
    ("answers", "second"),
    [
        ([OK, CLOSE, OK], HttpReply(200, b"ok", {})),
        ([OK, b"HTTP/1.1 200 OK\r\nContent-L" + CUT, OK], "ServerDisconnectedError"),
        ([OK, b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nok" + CUT, OK], "ClientPayloadError"),
        ([OK, CLOSE, CLOSE], "ServerDisconnectedError"),
    ],
)
def test_request_is_sent_again_where_a_kept_connection_closed_before_a_byte_of_the_reply(
    method: str, answers: list[bytes], second: HttpReply | str
) -> None:
    """The close crossed the request, as between browsers and servers; a connection made now means the server failed."""

    async def story(client: Client) -> list[HttpReply | str]:
        return [await post(client, b"", method), await post(client, b"", method)]

    found, seen = run(answers, story)
    assert found[0] == HttpReply(200, b"ok", {})
    assert found[1] == second if isinstance(second, HttpReply) else str(found[1]).startswith(second)
    assert len(seen.seen) == (3 if answers[1] == CLOSE else 2)


def test_reply_that_does_not_come_ends_at_its_time_and_takes_its_connection_along() -> None:
    """What would come late must not be the next one's reply."""

    async def story(client: Client) -> list[HttpReply | str]:
        return [await post(client), await post(client)]

    answers, found = run([b"HTTP/1.1 200 OK\r\n", OK], story)
    assert answers == ["no reply within 1000 ms", HttpReply(200, b"ok", {})]
    assert found.connections == 2


def test_large_body_that_was_answered_before_it_was_sent_takes_its_connection_along() -> None:
    """Its rest would stand before the next request."""

    async def story(client: Client) -> list[HttpReply | str]:
        return [await post(client, bytes(20 * LARGE_BYTES)), await post(client)]

    answers, found = run([OK] * 50, story)
    assert answers == [HttpReply(200, b"ok", {})] * 2
    assert found.seen[-1].endswith(b"\r\n\r\nbody")
    assert found.connections == 2


def test_connections_that_are_not_kept_are_said_to_close() -> None:
    """Those to addresses that messages name."""
    _, found = run([OK], post, keep=False)
    assert b"\r\nConnection: close\r\n\r\n" in found.seen[0]


def test_header_that_ends_a_line_is_a_bug_and_is_not_sent() -> None:
    """Whoever composes requests has looked at each."""

    async def story(client: Client) -> None:
        for name, value in (("X", "1\r\nY: 2"), ("X\n", "1"), ("X", "1\r")):
            with pytest.raises(AssertionError):
                await client.send("POST", HOOK, [(name, value)], b"", 1000)

    _, found = run([], story)
    assert found.seen == []


def test_servers_are_remembered_within_a_bound() -> None:
    """Messages may name others without end."""

    async def story(client: Client) -> int:
        for number in range(600):
            await post(client, url=URL(f"http://10.0.{number % 200}.1:{number}/"))
        return most_kept(client)

    assert 50 <= run([], story)[0] <= 256


def test_heads_of_status_1xx_without_end_are_no_reply() -> None:
    """Sixteen are passed over; a receiver that sends more gets its connection closed."""
    head = b"HTTP/1.1 102 Processing\r\n\r\n"

    async def story(client: Client) -> list[HttpReply | str]:
        return [await post(client), await post(client), await post(client)]

    answers, found = run([head * INTERIM_MAX + OK, head * 10_000, OK], story)
    assert answers == [
        HttpReply(200, b"ok", {}),
        "more than 16 responses of status 1xx came instead of a reply",
        HttpReply(200, b"ok", {}),
    ]
    assert found.connections == 2


@pytest.mark.parametrize(
    "later", [b"HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\nforeign", b"HTTP/1.1 102 x\r\n\r\n", b"?"]
)
def test_reply_that_nothing_asked_for_is_not_taken_by_the_next_message(later: bytes) -> None:
    """A kept connection over which anything comes is closed; the next message has a new one."""

    async def story(client: Client) -> list[HttpReply | str]:
        first = await post(client)
        await asyncio.sleep(1.0)
        return [first, await post(client)]

    answers, found = run([OK, OK], story, later=later)
    assert answers == [HttpReply(200, b"ok", {})] * 2
    assert found.connections == 2


def test_reply_behind_a_reply_closes_the_connection() -> None:
    """Two replies to one request: the second belongs to nothing."""

    async def story(client: Client) -> list[HttpReply | str]:
        return [await post(client), await post(client)]

    answers, found = run([OK + OK, OK], story)
    assert answers == [HttpReply(200, b"ok", {})] * 2
    assert found.connections == 2


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\nBad Header s3cret: 1\r\n\r\n",
        b"HTTP/1.1 s3cret OK\r\n\r\n",
        b"s3cret\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nX: " + b"s3cret" * 9000 + b"\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: s3cret\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\ns3cret\r\n",
    ],
)
def test_error_of_the_parser_quotes_nothing_of_the_reply(answer: bytes) -> None:
    """A receiver may repeat the secrets that it was sent, where they cannot be masked."""
    text, _ = run([answer], post)
    assert isinstance(text, str)
    assert "s3cret" not in text
