"""What becomes of messages that are due: stored in runs, refused, lost, or taken back, each of them exactly once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.errors import DiskFull, MessageRefused, RecordGone, StoreError
from broker.log.put import Put
from broker.queues.topics import Topic
from broker.scheduled.delivery import Due, ScheduledDelivery
from broker.scheduled.release_plain import Plain
from broker.store import Store

GOOD, BAD = Topic("good", system=False), Topic("bad", system=False)
HOST, HOST_V6 = bytes(8), bytes(20)


class Log:
    """What of a store a delivery uses: it takes appends, all or nothing, until it is full."""

    def __init__(self) -> None:
        self.appends: list[list[bytes]] = []
        self.atomic: list[bool] = []
        self.origins: list[Sequence[tuple[int, bytes]]] = []
        self.done: list[Callable[[StoreError | None], None]] = []
        self.full_after = 1 << 62

    def append(
        self,
        puts: Sequence[Put],
        *,
        born_ms: int,
        born_host: bytes,
        done: Callable[[StoreError | None], None],
        atomic: bool,
        origins: Sequence[tuple[int, bytes]] | None,
    ) -> None:
        """Take messages, but none for the topic `bad`."""
        if any(put.topic is BAD for put in puts):
            raise MessageRefused("bad takes nothing")
        if len(self.appends) >= self.full_after:
            raise DiskFull("/s", 1024)
        assert len({len(host) for _, host in origins or [(born_ms, born_host)]}) == 1
        assert origins is None or len(origins) == len(puts)
        self.appends.append([bytes(put.body) for put in puts])
        self.atomic.append(atomic)
        self.origins.append(origins or [(born_ms, born_host)])
        self.done.append(done)


class Room:
    """Where messages wait. A message is a letter: what is to become of it; capitals need a second look.

    `p` plain; `r` plain, its topic refuses it; `P` stored; `V` from an IPv6 host; `T` two puts together; `R` refused;
    `B` its topic refuses it; `L` lost; `N` needs nothing.
    """

    def __init__(self) -> None:
        self.log = Log()
        self.delivery: ScheduledDelivery[str] = ScheduledDelivery(cast(Store, self.log), self)
        self.refused: list[tuple[str, str]] = []
        self.lost: list[str] = []
        self.waits: list[list[str]] = []
        self.given_back: list[str] = []
        self.stored: list[str] = []
        self.errors: list[StoreError] = []

    def release_plain(self, messages: list[str]) -> Plain:
        """Lower-case ones."""
        plain = [each for each in messages if each.islower()]
        puts = [Put(BAD if each == "r" else GOOD, 0, each.encode(), b"") for each in plain]
        others = [place for place, each in enumerate(messages) if each.isupper()]
        return Plain(puts, [(place, HOST) for place in range(len(plain))], others)

    def release(self, message: str) -> Due | None:
        """Capital ones."""
        if message == "L":
            raise RecordGone(5)
        if message == "R":
            raise MessageRefused("not now")
        if message == "N":
            return None
        put = Put(BAD if message == "B" else GOOD, 0, message.encode(), b"")
        return Due((put, put) if message == "T" else (put,), 7, HOST_V6 if message == "V" else HOST)

    def refuse(self, message: str, reason: str) -> None:
        """Note it."""
        self.refused.append((message, reason))

    def lose(self, message: str, error: StoreError) -> None:
        """Note it."""
        self.lost.append(message)

    def wait(self, messages: Sequence[str], error: StoreError) -> None:
        """Note it."""
        assert isinstance(error, DiskFull)
        self.waits.append(list(messages))

    def give_back(self, messages: Sequence[str]) -> None:
        """Note it."""
        self.given_back += messages

    def done(self, messages: list[str], error: StoreError | None) -> None:
        """Note it."""
        self.stored += messages
        if error is not None:
            self.errors.append(error)

    def deliver(self, messages: str, *, together_max: int = 100) -> bool:
        """Deliver messages, a letter each."""
        return self.delivery.deliver(list(messages), together_max=together_max)

    def end(self, error: StoreError | None = None) -> None:
        """Make all appends durable, or fail."""
        while self.log.done:
            self.log.done.pop(0)(error)


def test_plain_messages_are_one_append() -> None:
    """Each keeps when and where it was made."""
    room = Room()
    assert room.deliver("ppp")
    assert (room.log.appends, room.log.atomic) == ([[b"p", b"p", b"p"]], [False])
    assert room.log.origins == [[(0, HOST), (1, HOST), (2, HOST)]]
    assert (room.delivery.in_flight, room.delivery.steps, room.delivery.appended) == (3, 1, 3)
    room.end()
    assert room.stored == ["p"] * 3
    assert (room.delivery.in_flight, room.delivery.steps) == (0, 0)


def test_nothing_to_deliver_is_no_append() -> None:
    """Also when all of it needs nothing any more."""
    room = Room()
    assert room.deliver("")
    assert room.deliver("NLR")
    assert (room.log.appends, room.delivery.steps) == ([], 0)


def test_refused_message_of_a_run_does_not_hold_the_others_up() -> None:
    """An append is taken or refused as a whole: then they are appended one by one, in their order."""
    room = Room()
    assert room.deliver("prp")
    assert room.log.appends == [[b"p"], [b"p"]]
    assert room.refused == [("r", "bad takes nothing")]


def test_messages_of_hosts_of_different_length_are_appends_of_their_own() -> None:
    """A record's header has room for one length of host, and an append has one form."""
    room = Room()
    assert room.deliver("pVVPp")
    assert room.log.appends == [[b"p"], [b"V", b"V"], [b"P", b"p"]]


def test_puts_that_belong_together_are_an_atomic_append_of_their_own() -> None:
    """Several puts of one message are stored together or not at all, and with no other message."""
    room = Room()
    assert room.deliver("pTTp")
    assert room.log.appends == [[b"p"], [b"T", b"T"], [b"T", b"T"], [b"p"]]
    assert room.log.atomic == [False, True, True, False]
    assert room.log.origins[1] == [(7, HOST)]


@pytest.mark.parametrize("together_max", [3, 4])
def test_rest_of_a_step_is_given_back_when_it_is_long_enough(together_max: int) -> None:
    """Messages with many puts make a step long: what follows them comes with the next one."""
    room = Room()
    assert room.deliver("pTTpT", together_max=together_max)
    assert room.log.appends == [[b"p"], [b"T", b"T"], [b"T", b"T"]]
    assert room.given_back == ["p", "T"]


@pytest.mark.parametrize(
    ("messages", "appends_taken", "waits"),
    [("ppp", 0, "ppp"), ("pTp", 1, "Tp"), ("pLVRp", 1, "Vp"), ("pTTp", 2, "Tp")],
)
def test_full_store_gives_back_everything_from_the_first_that_it_did_not_take(
    messages: str, appends_taken: int, waits: str
) -> None:
    """In their order, so that the next step begins with it; what was taken, lost or refused is not among them."""
    room = Room()
    room.log.full_after = appends_taken
    assert not room.deliver(messages)
    assert room.waits == [list(waits)]


def test_store_that_is_full_in_the_middle_of_one_by_one_gives_back_the_rest() -> None:
    """What was stored and refused before is not among it."""
    room = Room()
    room.log.full_after = 1
    assert not room.deliver("rprpp")
    assert (len(room.refused), room.waits) == (2, [["p", "p"]])


def test_step_is_under_way_until_its_last_run_is_durable() -> None:
    """Steps are what a waiter bounds; messages in flight are what a cancel has to wait for."""
    room = Room()
    room.deliver("pVp")
    room.deliver("p")
    assert (room.delivery.in_flight, room.delivery.steps) == (4, 2)
    for left, steps in ((3, 2), (2, 2), (1, 1), (0, 0)):
        room.log.done.pop(0)(None)
        assert (room.delivery.in_flight, room.delivery.steps) == (left, steps)


def test_failed_store_is_told_to_the_waiter_and_leaves_nothing_in_flight() -> None:
    """With the error, so that it settles nothing."""
    room, error = Room(), StoreError("the disk")
    room.deliver("pp")
    room.end(error)
    assert (room.errors, room.delivery.in_flight, room.delivery.steps) == ([error], 0, 0)


def test_each_append_is_made_within_what_the_waiter_asked_for() -> None:
    """It measures how long appends take."""
    entered: list[int] = []
    room = Room()

    def around() -> AbstractContextManager[None]:
        entered.append(len(room.log.appends))
        return nullcontext()

    room.delivery = ScheduledDelivery(cast(Store, room.log), room, appending=around)
    room.deliver("pVp")
    assert entered == [0, 1, 2]


@given(st.text(alphabet="prPVTRBLN", max_size=14), st.integers(0, 8), st.integers(1, 8))
def test_each_message_has_one_fate_and_the_order_is_kept(messages: str, full_after: int, together_max: int) -> None:
    """Stored, refused, lost, taken back, or needed nothing; numbers tell them apart."""
    room = Room()
    room.log.full_after = full_after
    numbered = [_Numbered(each, place) for place, each in enumerate(messages)]
    goes_on = room.delivery.deliver(list(numbered), together_max=together_max)
    room.end()
    taken_back = [*[each for back in room.waits for each in back], *room.given_back]
    fates = [*room.stored, *[each for each, _ in room.refused], *room.lost, *taken_back]
    places = [each.place for each in fates if isinstance(each, _Numbered)]
    assert len(set(places)) == len(places)
    assert {each.place for each in numbered if each != "N"} <= {*places}
    for kept in (room.stored, taken_back):
        order = [each.place for each in kept if isinstance(each, _Numbered)]
        assert order == sorted(order)
    assert goes_on is not bool(room.waits)
    assert (room.delivery.in_flight, room.delivery.steps) == (0, 0)


class _Numbered(str):
    """A message that is known among others like it."""

    place: int

    def __new__(cls, text: str, place: int) -> _Numbered:
        made = super().__new__(cls, text)
        made.place = place
        return made
