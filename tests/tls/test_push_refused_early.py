"""A receiver that refuses a push from its head and closes, with the body unread: its reply is read, by TLS as well."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import threading
from pathlib import Path

import pytest
from yarl import URL

from actions.client_factories import Outside
from actions.http.client import LARGE_BYTES, Client, HttpReply
from actions.http.connection_options import HttpWish
from tests.patient import PATIENCE_MS, PATIENCE_SECONDS
from tests.tls.authority import Authority

REFUSAL = b"HTTP/1.1 413 Content Too Large\r\nContent-Length: 9\r\nConnection: close\r\n\r\ntoo large"


def refuse_one(listener: socket.socket, context: ssl.SSLContext | None) -> None:
    """Read a part of one request, refuse it, and close with the rest unread: the kernel sends a reset."""
    connection, _ = listener.accept()
    connection.settimeout(PATIENCE_SECONDS)
    # Otherwise the reply waits for an acknowledgement, and the reset deletes it before it is sent.
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    with contextlib.ExitStack() as stack:
        peer = stack.enter_context(connection if context is None else context.wrap_socket(connection, server_side=True))
        peer.recv(4096)
        peer.sendall(REFUSAL)


@pytest.mark.parametrize("size", [LARGE_BYTES // 2, LARGE_BYTES * 16])
@pytest.mark.parametrize("tls", [False, True], ids=["plain", "tls"])
def test_reply_to_a_body_that_is_not_read_is_the_outcome(tmp_path: Path, tls: bool, size: int) -> None:
    """Neither a failed write nor the reset hides the reply."""
    authority = Authority()
    certificate, key = authority.issue("receiver").write(tmp_path, "receiver")
    ca_file, _ = authority.own.write(tmp_path, "ca")
    context = None
    if tls:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, key)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(PATIENCE_SECONDS)
        receiver = threading.Thread(target=refuse_one, args=(listener, context), daemon=True)
        receiver.start()
        url = URL(f"http{'s' if tls else ''}://localhost:{listener.getsockname()[1]}/hook")

        async def push() -> HttpReply:
            client = Client(Outside(), HttpWish(connections_max=1, ca_file=ca_file if tls else None), 1000)
            try:
                return await client.send("POST", url, [], b"x" * size, PATIENCE_MS)
            finally:
                await client.close()

        reply = asyncio.run(push())
        receiver.join(PATIENCE_SECONDS)
    assert (reply.status, reply.body) == (413, b"too large")
