"""The executors' connection, with peers that are no node or answer nonsense; real nodes: tests/spark."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import pytest

from lag.spark.sources.node import CODES, PASSING, NodeClient, NodeFailed, NodeRefused, QueueOffsets, number_of
from lag.spark.sources.options import OptionRefused
from proxy.wire.call import BINARY, parse_call
from proxy.wire.generic.calls import encode_reply
from pyddmq.codes import PullCode
from tests.patient import PATIENCE_SECONDS


@contextmanager
def peer(answer: Callable[[bytes], bytes | None]) -> Iterator[str]:
    """Answer each frame with bytes; None closes the connection. Yields the address."""
    server = socket.create_server(("127.0.0.1", 0))

    def run() -> None:
        while True:
            try:
                connection, _ = server.accept()
            except OSError:
                return
            with connection, suppress(ConnectionError):
                connection.settimeout(PATIENCE_SECONDS)
                while head := connection.recv(4, socket.MSG_WAITALL):
                    frame = connection.recv(int.from_bytes(head, "big"), socket.MSG_WAITALL)
                    said = answer(frame)
                    if said is None:
                        break
                    connection.sendall(said)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        yield f"127.0.0.1:{server.getsockname()[1]}"
    finally:
        server.shutdown(socket.SHUT_RDWR)
        server.close()
        thread.join(PATIENCE_SECONDS)


def rows(*found: dict[str, object]) -> Callable[[bytes], bytes]:
    """Answer fetches with these queues."""
    return lambda frame: encode_reply(parse_call(frame), {"success": {"results": list(found)}})


def test_codes_are_the_nodes_own() -> None:
    """Each code that a fetch may get has a sentence, and those that pass are those that the node says pass."""
    retriable = {int(code) for code in PullCode if code.retriable and code is not PullCode.ACKS_REFUSED}
    assert set(CODES) == {int(code) for code in PullCode} - {
        PullCode.ACKS_REFUSED,
        PullCode.STORE_FAILED,
        PullCode.LOW_LEVEL,
    }
    assert retriable == PASSING


@pytest.mark.parametrize("address", ["", "host", "host:", ":1", "host:0", "host:65536", "a b:1", "http://h:1", "::1:5"])
def test_malformed_addresses_are_refused(address: str) -> None:
    """Before anything is connected."""
    with pytest.raises(OptionRefused, match="write host:port"):
        NodeClient(address)


def test_no_node_and_no_answer_say_so() -> None:
    """Nobody there, one who hangs up, and one who speaks HTTP."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
        with NodeClient(address) as client, pytest.raises(NodeFailed, match=rf"no answer from {address}: .*refused"):
            client.standings("g")
    answers: tuple[tuple[Callable[[bytes], bytes | None], str], ...] = (
        (lambda frame: None, "the other side closed it"),
        (lambda frame: b"HTTP/1.1 400 Bad Request", "is not a consumer"),
    )
    for answer, sentence in answers:
        with (
            peer(answer) as address,
            NodeClient(address) as client,
            pytest.raises(NodeFailed, match=sentence),
        ):
            client.standings("g")


def test_lost_connection_and_starting_node_are_waited_out() -> None:
    """The same call again, until it is answered or patience ends."""
    calls = []

    def answer(frame: bytes) -> bytes | None:
        calls.append(frame)
        call = parse_call(frame)
        if len(calls) == 1:
            return None
        if len(calls) == 2:
            return encode_reply(call, {"error": {"code": 3, "message": "starting"}})
        stats = {"group": "g", "topic": "t", "consumeOffsets": {"q_0": 2}, "produceOffsets": {"q_0": 5}}
        return encode_reply(call, {"success": [{**stats, "startOffsets": {"q_0": 1}}]})

    with peer(answer) as address, NodeClient(address, patience=PATIENCE_SECONDS) as client:
        assert client.standings("g") == {"t": {"q_0": QueueOffsets(1, 2, 5)}}
        assert len(calls) == 3


@pytest.mark.parametrize("code", list(PullCode))
def test_refusals_have_code_and_sentence(code: PullCode) -> None:
    """Of a fetch, whose answer has the code."""

    def answer(frame: bytes) -> bytes:
        return encode_reply(parse_call(frame), {"success": {"code": int(code), "results": []}})

    with (
        peer(answer) as address,
        NodeClient(address) as client,
        pytest.raises(NodeRefused, match=rf"\(code {int(code)}\)") as refused,
    ):
        client.fetch("g", "t", "q_0", 0, 1)
    assert refused.value.code == code


MESSAGE = {"value": b"v", "offset": 5}
ROW = {"topic": "t", "qid": "q_0", "nextRequestOffset": 6, "messages": [MESSAGE]}


@pytest.mark.parametrize(
    "answer",
    [
        rows(),
        rows(ROW, ROW),
        rows({**ROW, "topic": "u"}),
        rows({**ROW, "qid": "q_1"}),
        rows({**ROW, "nextRequestOffset": 5}),
        rows({**ROW, "messages": [MESSAGE, MESSAGE]}),
        rows({**ROW, "messages": [MESSAGE, {**MESSAGE, "offset": 4}]}),
        rows({**ROW, "messages": [{"value": b"no offset"}]}),
        lambda frame: encode_reply(parse_call(frame), {}),
    ],
)
def test_fetch_that_is_answered_with_something_else_fails(answer: Callable[[bytes], bytes]) -> None:
    """What would be rows of another queue, or the same ones twice, is never believed."""
    with peer(rows(ROW)) as address, NodeClient(address) as client:
        assert client.fetch("g", "t", "q_0", 5, 1).messages == [{2: b"v", 4: 5}]
    with peer(answer) as address, NodeClient(address) as client, pytest.raises(NodeFailed, match="answer"):
        client.fetch("g", "t", "q_0", 5, 1)


def test_queue_numbers_are_read_from_qids() -> None:
    """A node's qid is cluster, broker and number."""
    assert number_of("pyddmq_broker-0_12") == 12
    with pytest.raises(NodeFailed, match="ends with _ and a number"):
        number_of("q")


def test_binary_is_what_is_spoken() -> None:
    """So that the node's own codec sees the protocol it knows."""
    seen = []

    def answer(frame: bytes) -> bytes:
        call = parse_call(frame)
        seen.append((call.protocol, call.method))
        return encode_reply(call, {"success": True})

    with peer(answer) as address, NodeClient(address) as client:
        assert client.ack("g", {"t": {"q_0": 3}}) is True
    assert seen == [(BINARY, "ack")]
