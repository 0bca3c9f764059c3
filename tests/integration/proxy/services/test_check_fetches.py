"""Fetches of checks in their connection's turn: waiting, end of file, replies that never left, draining (D18, D33)."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

from broker.runtime.bundle import runtime_of
from broker.transaction.settings import CheckSettings
from conf import NodeConfig
from proxy.port.accepting import ServerLimits
from proxy.port.connection import Connection
from proxy.port.server import Commons, ThriftServer
from proxy.services.kafka.halves import KafkaHalves
from proxy.services.limited_sends import LimitedSends
from proxy.services.message_checks import MessageChecks
from proxy.services.publishing import Publishing
from proxy.services.stations import Stations
from proxy.services.transaction_service import TransactionService
from proxy.wire.call import COMPACT
from tests.fakes.access import open_guard
from tests.fakes.codec import Reply, decode_reply, encode_call
from tests.integration.keyed_tools import keyed_sends
from tests.integration.transaction_tools import GROUP, Broker, broker
from tests.unit.proxy.port.test_connection_turn import Peer
from upstream.budget import Budget

BUDGET_BYTES = 64 << 20
SETTINGS = NodeConfig(max_parked_pulls=2)


@dataclass
class Port:
    """A producer port over a store on a simulated disk; turns end by hand."""

    broker: Broker
    server: ThriftServer
    service: TransactionService
    budget: Budget
    state: str = "ready"

    def connect(self) -> tuple[Connection, Peer]:
        """Open one connection."""
        connection, peer = Connection(self.server), Peer()
        connection.connection_made(peer)
        return connection, peer

    def half(self, body: bytes) -> str:
        """Store a half and let its time for a check come."""
        handle = self.broker.half(body)
        self.pass_time(1.0)
        return handle

    def pass_time(self, seconds: float) -> None:
        """Let time pass and the turn end."""
        self.broker.scheduler.advance(seconds)
        self.end_turn()

    def end_turn(self) -> None:
        """Flush the store, and the replies after it."""
        self.broker.store.flush()
        self.server.flush()


def port(settings: NodeConfig = SETTINGS) -> Port:
    """Open a store whose checks are due after half a second, and given for ten."""
    found = broker(checks=CheckSettings(timeout_ms=500, interval_ms=10_000, checks_max=3))
    found.transactions.start()
    budget, metrics = Budget(BUDGET_BYTES), found.metrics
    runtime = runtime_of(found.disk, found.clock, metrics=metrics, scheduler=found.scheduler, random=random.Random(1))
    checks = MessageChecks({}, store=found.store, runtime=runtime, body_bytes_max=1000, auto_create=lambda _: None)
    publishing = Publishing(store=found.store, runtime=runtime, state=lambda: made.state, budget=budget)
    stations = Stations(
        checks,
        publishing,
        keyed_sends(found.store, disk=found.disk, metrics=metrics),
        LimitedSends(runtime, budget=budget, waiting_max=lambda: 1),
        None,
        open_guard(runtime),
    )
    service = TransactionService(
        stations,
        found.transactions,
        KafkaHalves({}, runtime.clock),
        state=lambda: made.state,
        settings=lambda: settings,
        runtime=runtime,
    )
    server = ThriftServer(
        "producer",
        service.handlers(),
        limits=ServerLimits(),
        commons=Commons(
            runtime=runtime_of(found.disk, found.clock, metrics=metrics, scheduler=found.scheduler),
            request_turn=lambda: None,
            budget=budget,
        ),
    )
    made = Port(found, server, service, budget)
    return made


def fetch(connection: Connection, *, linger_ms: int = 5_000, answers: Any = None, seqid: int = 1) -> None:
    """Have a fetch arrive."""
    request = {"producerGroup": GROUP, "maxLingerTime": linger_ms, "answers": answers}
    connection.data_received(encode_call(COMPACT, "fetchChecks", seqid, {"request": request}))


def replies(peer: Peer) -> list[Reply]:
    """What a peer got, and forget it."""
    data, found = b"".join(peer.written), []
    peer.written.clear()
    while data:
        size = int.from_bytes(data[:4], "big")
        found.append(decode_reply(data[4 : 4 + size]))
        data = data[4 + size :]
    return found


def test_waiting_fetch_is_answered_when_a_check_comes_up_and_empty_at_the_end_of_its_linger() -> None:
    """In the turn in which it becomes due."""
    made = port()
    connection, peer = made.connect()
    fetch(connection)
    assert made.service.line.count == 1
    made.half(b"one")
    [reply] = replies(peer)
    assert [check["message"]["body"] for check in reply.value] == [b"one"]
    fetch(connection, linger_ms=1_000)
    made.pass_time(0.9)
    assert replies(peer) == []
    made.pass_time(0.2)
    assert [reply.value for reply in replies(peer)] == [[]]
    assert made.service.line.count == 0


def test_check_whose_reply_never_left_is_given_back_at_once_and_does_not_count() -> None:
    """The next fetch, of somebody else, has it as the first check."""
    made = port()
    made.half(b"one")
    gone, _ = made.connect()
    fetch(gone)
    gone.connection_lost(None)
    connection, peer = made.connect()
    fetch(connection)
    made.end_turn()
    [[check]] = [reply.value for reply in replies(peer)]
    assert check["checkTimes"] == 1


def test_check_whose_producer_died_comes_again_after_the_interval() -> None:
    """A reply that left counts; another process is asked once the time to answer has passed."""
    made = port()
    made.half(b"one")
    gone, peer = made.connect()
    fetch(gone)
    made.end_turn()
    assert len(replies(peer)[0].value) == 1
    gone.connection_lost(None)
    connection, peer = made.connect()
    fetch(connection, linger_ms=30_000)
    made.pass_time(8.0)
    assert replies(peer) == []
    made.pass_time(3.0)
    assert [check["checkTimes"] for check in replies(peer)[0].value] == [2]


def test_end_of_file_and_a_lost_connection_unpark() -> None:
    """End of file answers empty; a lost connection leaves nothing behind that a check could go to."""
    made = port()
    ended, peer = made.connect()
    fetch(ended)
    ended.eof_received()
    made.end_turn()
    assert [reply.value for reply in replies(peer)] == [[]]
    lost, _ = made.connect()
    fetch(lost)
    lost.connection_lost(None)
    assert made.service.line.count == 0
    made.half(b"one")
    connection, peer = made.connect()
    fetch(connection)
    made.end_turn()
    assert [check["checkTimes"] for check in replies(peer)[0].value] == [1]


def test_calls_behind_a_waiting_fetch_take_effect_and_are_answered_after_it() -> None:
    """A decision counts at once; its reply, and the next fetch, wait for their turn (D18)."""
    made = port()
    handle = made.broker.half(b"one")
    connection, peer = made.connect()
    fetch(connection, linger_ms=300)
    decision = {"producerGroup": GROUP, "handle": handle, "state": 8}
    connection.data_received(encode_call(COMPACT, "endTransaction", 2, {"decision": decision}))
    fetch(connection, linger_ms=5_000, seqid=3)
    made.end_turn()
    assert made.broker.visible() == [b"one"]
    assert replies(peer) == []
    assert made.service.line.count == 1
    made.pass_time(0.4)
    assert [(reply.seqid, reply.method) for reply in replies(peer)] == [(1, "fetchChecks"), (2, "endTransaction")]
    made.half(b"two")
    [reply] = replies(peer)
    assert (reply.seqid, [check["message"]["body"] for check in reply.value]) == (3, [b"two"])


def test_answers_count_although_their_fetch_waits_or_is_refused() -> None:
    """They are taken when they arrive, as acks are."""
    made = port()
    made.half(b"one")
    connection, peer = made.connect()
    fetch(connection)
    made.end_turn()
    [check] = replies(peer)[0].value
    answer = {"handle": check["handle"], "state": 8, "fromCheck": True}
    made.budget.add(BUDGET_BYTES * 13 // 16)
    fetch(connection, answers=[answer])
    made.end_turn()
    [reply] = replies(peer)
    assert reply.application is not None
    assert (reply.application[0], "memory" in reply.application[1]) == (6, True)
    assert made.broker.visible() == [b"one"]


def test_draining_node_hands_out_no_checks_and_takes_decisions() -> None:
    """A fetch waits its time; what is told is kept."""
    made = port()
    handle = made.half(b"one")
    made.state = "draining"
    connection, peer = made.connect()
    fetch(connection, linger_ms=500)
    made.pass_time(0.6)
    assert [reply.value for reply in replies(peer)] == [[]]
    decision = {"producerGroup": GROUP, "handle": handle, "state": 12}
    connection.data_received(encode_call(COMPACT, "endTransaction", 2, {"decision": decision}))
    made.pass_time(0.01)
    assert [reply.value["code"] for reply in replies(peer)] == [0]
    message = {"topic": "t", "body": b"two"}
    arguments = {"message": message, "producerGroup": GROUP}
    connection.data_received(encode_call(COMPACT, "sendHalfSync", 3, arguments))
    made.end_turn()
    assert replies(peer)[0].value["code"] != 0


def test_too_many_fetches_are_refused_in_words() -> None:
    """MaxParkedPulls holds for fetches of checks; the others keep waiting."""
    made = port()
    for _ in range(2):
        fetch(made.connect()[0])
    connection, peer = made.connect()
    fetch(connection)
    made.end_turn()
    [reply] = replies(peer)
    assert reply.application is not None
    assert "fewer connections" in reply.application[1]
    assert made.service.line.count == 2


def test_reply_holds_as_many_bodies_as_a_reply_of_a_pull() -> None:
    """MaxRecvMsgsLength bounds it, one check at least; the others come with the next fetch."""
    made = port(NodeConfig(max_recv_msgs_length=1024))
    for number in range(5):
        made.broker.half(bytes([number]) * 700)
    made.pass_time(1.0)
    connection, peer = made.connect()
    sizes = []
    for _ in range(3):
        fetch(connection)
        made.end_turn()
        sizes.append(len(replies(peer)[0].value))
    assert sizes == [2, 2, 1]
