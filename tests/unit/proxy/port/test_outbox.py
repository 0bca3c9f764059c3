"""The replies of a connection: in the order of requests; what never left goes back; what is held is accounted for."""

from __future__ import annotations

from functools import partial

import pytest

from proxy.port.connection import CONNECTION_BYTES, Connection
from proxy.port.network import NoPeer
from proxy.port.reply_slot import SLOT_BYTES, Leased, ReplySlot
from proxy.wire.call import Call
from tests.unit.proxy.port.test_port_server import FRAME, Port


class Slow:
    """A port whose calls are answered by hand, and one client."""

    def __init__(self, **limits: int) -> None:
        self.slots: list[ReplySlot] = []
        self.lost: list[bytes] = []
        self.port = Port(self._keep, **limits)
        self.connection, self.peer = self.port.connect()

    def _keep(self, connection: Connection, _: Call) -> None:
        self.slots.append(connection.later())

    def ask(self, count: int = 1) -> list[ReplySlot]:
        """So many requests arrive; return their places."""
        for _ in range(count):
            self.connection.data_received(FRAME)
        return self.slots[-count:]

    def answer(self, slot: ReplySlot, data: bytes) -> None:
        """Answer with messages that go back where the reply does not reach its client."""
        slot.answer(data, partial(self.went_back, data))

    def went_back(self, data: bytes) -> None:
        self.lost.append(data)

    @property
    def held(self) -> int:
        """What the node's account says is held for the client."""
        assert self.port.budget.used - CONNECTION_BYTES == self.connection.held_bytes
        return self.connection.held_bytes


def test_replies_leave_in_the_order_of_their_requests() -> None:
    """One that is ready before its turn waits for those before it, in the account until it has left."""
    slow = Slow()
    first, second, third = slow.ask(3)
    assert slow.held == 3 * SLOT_BYTES
    third.answer(b"333")
    second.answer(b"22")
    assert (slow.held, slow.connection.doing) == (3 * SLOT_BYTES + 5, "busy")
    slow.port.server.flush()
    assert slow.peer.written == []
    first.answer(b"1")
    assert slow.held == 6
    slow.port.server.flush()
    assert (b"".join(slow.peer.written), slow.held, slow.connection.doing) == (b"122333", 0, "idle")


def test_small_replies_of_a_turn_share_a_call_and_those_with_messages_go_alone() -> None:
    """So that it is known of each whether it left."""
    slow = Slow()
    slots = slow.ask(5)
    for slot, data in zip(slots[:2], (b"a", b"b"), strict=True):
        slot.answer(data)
    slow.answer(slots[2], b"messages")
    for slot, data in zip(slots[3:], (b"c", b"d"), strict=True):
        slot.answer(data)
    slow.port.server.flush()
    assert slow.peer.written == [b"ab", b"messages", b"cd"]
    assert slow.lost == []


def test_what_a_peer_takes_no_more_of_stays_ours_and_goes_back_with_the_connection() -> None:
    """The reply that the kernel has is gone; those behind it never left."""
    slow = Slow()
    slow.peer.takes_all = False
    for slot, data in zip(slow.ask(3), (b"first", b"second", b"third"), strict=True):
        slow.answer(slot, data)
    slow.port.server.flush()
    assert (slow.peer.written, slow.connection.doing) == ([b"first"], "writing")
    assert slow.connection.outbox.carries_messages
    slow.connection.connection_lost(None)
    assert (slow.lost, slow.port.budget.used) == ([b"second", b"third"], 0)


class Gone(NoPeer):
    """The other end of a client that has closed, as the system knows."""

    def gone(self) -> bool:
        return True


def test_messages_for_a_client_that_has_closed_are_not_written() -> None:
    """They go back at once, and count as no delivery (W9)."""
    slow = Slow()
    slow.connection.outbox.peer = Gone()
    [slot] = slow.ask()
    slow.answer(slot, b"messages")
    slow.port.server.flush()
    assert (slow.lost, b"".join(slow.peer.written), slow.held) == ([b"messages"], b"", 0)


def test_answer_to_a_client_that_left_goes_back() -> None:
    """Also one that waited for its turn, and what the client's leaving withdrew is withdrawn once."""
    slow = Slow()
    withdrawn: list[int] = []
    first, second, third = slow.ask(3)
    slow.answer(second, b"waits")
    third.withdraw = partial(withdrawn.append, 3)
    slow.connection.connection_lost(None)
    assert (slow.lost, withdrawn) == ([b"waits"], [3])
    slow.answer(first, b"late")
    assert slow.lost == [b"waits", b"late"]
    assert (slow.peer.written, slow.port.budget.used) == ([], 0)


def test_pull_starts_when_those_before_it_are_answered_and_the_peer_reads() -> None:
    """It takes messages only then; its start may answer at once."""
    slow = Slow(output_bytes_max=4)
    first, second, third = slow.ask(3)
    started: list[str] = []

    def start() -> None:
        started.append("second")
        second.answer(b"22222")

    second.start = start
    third.start = partial(started.append, "third")
    assert not slow.connection.may_start()
    first.answer(b"1")
    assert started == ["second"]
    slow.port.server.flush()
    slow.connection.advance()
    assert started == ["second", "third"]


@pytest.mark.parametrize("answered", [0, 1])
def test_promise_is_carried_until_its_reply_has_left(answered: int) -> None:
    """Neither an earlier reply nor a later one stands for it."""
    slow = Slow()
    slots = slow.ask(2)
    slow.connection.promise(slow.connection.requests)
    slots.append(*slow.ask())
    for slot in slots[:answered]:
        slot.answer(b"x")
    slow.port.server.flush()
    assert slow.connection.carries_promise
    for slot in slots[answered:2]:
        slot.answer(b"x")
    assert slow.connection.carries_promise
    slow.port.server.flush()
    assert not slow.connection.carries_promise


def test_reply_is_given_once() -> None:
    """A second answer to one request is ours to find."""
    slow = Slow()
    [slot] = slow.ask()
    slot.answer(b"1")
    with pytest.raises(AssertionError, match="answered once"):
        slot.answer(b"2")


def test_client_that_says_it_ends_is_answered_and_closed() -> None:
    """What is parked is withdrawn; the rest is answered before the end."""
    slow = Slow()
    first, second = slow.ask(2)
    second.withdraw = partial(second.answer, b"empty")
    assert slow.connection.eof_received()
    assert not slow.peer.closed
    first.answer(b"1")
    slow.port.server.flush()
    assert (b"".join(slow.peer.written), slow.peer.closed) == (b"1empty", True)


def test_messages_whose_lease_ended_before_they_were_written_go_back() -> None:
    """A process that was stopped within a turn writes its replies when it goes on: others may have the messages."""
    slow = Slow()
    first, second = slow.ask(2)
    holds = True
    for slot, data in ((first, b"first"), (second, b"second")):
        slot.answer(data, Leased(partial(slow.went_back, data), lambda: holds))
    holds = False
    slow.port.server.flush()
    assert (slow.lost, slow.peer.written, slow.held) == ([b"first", b"second"], [b"", b""], 0)
    [third] = slow.ask()
    third.answer(b"third", Leased(partial(slow.went_back, b"third"), lambda: True))
    slow.port.server.flush()
    assert slow.peer.written[-1] == b"third"
