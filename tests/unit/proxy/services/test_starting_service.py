"""What the producer port says of transactions while the store is being recovered."""

from __future__ import annotations

from typing import Any

import pytest

from broker.runtime.bundle import runtime_of
from broker.runtime.metrics import Metrics
from proxy.port.accepting import ServerLimits
from proxy.port.connection import Connection
from proxy.port.server import Commons, ThriftServer
from proxy.services.starting_service import StartingService
from pyddmq.testing import ManualClock, ManualScheduler, SimDisk
from tests.fakes.access import open_guard
from tests.fakes.codec import decode_reply, encode_call
from tests.unit.proxy.port.test_connection_turn import Peer
from tests.wire_values import PROTOCOLS


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_transactions_are_told_to_come_again(protocol: int) -> None:
    """Halves and decisions with code 20, fetches with a sentence; nothing is taken."""
    clock, metrics = ManualClock(), Metrics()
    runtime = runtime_of(SimDisk(), clock, metrics=metrics, scheduler=ManualScheduler(clock))
    server = ThriftServer(
        "producer",
        StartingService(runtime, open_guard(runtime)).producer_handlers(),
        limits=ServerLimits(),
        commons=Commons(
            runtime=runtime,
            request_turn=lambda: None,
        ),
    )
    connection, peer = Connection(server), Peer()
    connection.connection_made(peer)
    calls: dict[str, dict[str, Any]] = {
        "sendHalfSync": {"message": {"topic": "t", "body": b"x"}, "producerGroup": "g"},
        "endTransaction": {"decision": {"producerGroup": "g", "handle": "h", "state": 8}},
        "fetchChecks": {"request": {"producerGroup": "g"}},
    }
    replies = []
    for name, arguments in calls.items():
        connection.data_received(encode_call(protocol, name, 1, arguments))
        server.flush()
        replies.append(decode_reply(peer.written.pop()[4:]))
    assert [reply.value["code"] for reply in replies[:2]] == [20, 20]
    assert replies[2].application is not None
    assert "starting" in replies[2].application[1]
    assert metrics.value("pyddmq_check_fetches_refused_total", "starting") == 1
