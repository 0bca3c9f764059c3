"""Ledger: each promise, broken in the smallest way, is noticed; the same history unbroken is not."""

from __future__ import annotations

from contextlib import nullcontext

import pytest

from tests.simulation.ledger import DeadLetter, Ledger, Place, PromiseBroken, Publish, Stamp, Stored, Subscription
from tests.simulation.loops import TOPIC
from tests.simulation.occurrences import GROUP, OccurrenceLedger

KEYED = Subscription(group="g", topic="t", order="KEY", timeout=2.0, intervals=1, retry_max=1)
UNORDERED = Subscription(group="g", topic="t", rules_vary=True)
JSON = Subscription(group="j", topic="t", order="PATH", json=True)


class History:
    """Writes a small history into a ledger; every event is one turn and 10 ms after the one before."""

    def __init__(self, *subscriptions: Subscription) -> None:
        self.ledger = Ledger(subscriptions or (KEYED,))
        self.stored: list[Stored] = []
        self.dead: list[DeadLetter] = []
        self.step = 0
        self.time = 0.0

    def now(self, *, later: float = 0.01) -> Stamp:
        """Return the stamp of the next event."""
        self.step += 1
        self.time += later
        return Stamp(self.step, self.step, self.time, self.ledger.life, asked=self.step)

    def publish(
        self, uid: int, key: str = "k", *, stored: bool = True, outcome: str = "stored", json: bool = True
    ) -> Place:
        """Send a message, have it answered, and put it into the log."""
        body = b'{"uid": %d}' % uid
        self.ledger.sent(Publish(uid, "t", key, "", body, "p", json, 1, self.now()))
        place = Place("t", "q0", len(self.stored))
        receipt = (place.qid, place.offset) if outcome == "stored" else None
        self.ledger.settled(uid, outcome, self.now(), receipt)
        if stored:
            self.stored.append(Stored(place, 100 * len(self.stored), uid, key, "", body))
        return place

    def deliver(
        self,
        uid: int,
        place: Place,
        *,
        client: str = "a",
        group: str = "g",
        later: float = 0.01,
        asked_before: float | None = None,
    ) -> Stamp:
        """Have a client read a message; `asked_before`: by a pull that is so many seconds old."""
        publish = self.ledger.publishes[uid]
        stamp = self.now(later=later)
        if asked_before is not None:
            stamp = stamp._replace(asked_time=stamp.time - asked_before)
        self.ledger.delivered(group, place, client, stamp, uid=uid, key=publish.key, tag="", body=publish.body)
        return stamp

    # What is answered, and how.
    def answer(
        self,
        place: Place,
        *,
        client: str = "a",
        success: bool = True,
        confirm: bool = True,
        of: Stamp | None = None,
        named: bool = False,
        at: Stamp | None = None,
    ) -> None:
        """Have a result reach the node and its call answered; `at`: together with another of that stamp."""
        self.ledger.answered("g", place, client, at or self.now(), success, of, named)
        if success and confirm:
            self.ledger.confirmed("g", place, self.now())

    def consume(self, uid: int, place: Place) -> None:
        """Deliver and answer."""
        self.deliver(uid, place)
        self.answer(place)

    def check(self) -> None:
        """Hold the history against the promises."""
        self.ledger.check(self.stored, self.dead)


def test_flawless_history_passes() -> None:
    """Two keys, a failure in place, a time-out, a restart: nothing is wrong with it."""
    history = History()
    first, second, other = history.publish(1), history.publish(2), history.publish(3, "other")
    history.deliver(1, first)
    history.deliver(3, other, client="b")
    history.answer(first, success=False)
    history.deliver(1, first, client="b")
    history.deliver(1, first, later=2.5)
    history.answer(first)
    history.deliver(2, second)
    history.ledger.ended(power_lost=False, time=history.time)
    history.consume(2, second)
    history.consume(3, other)
    history.check()


def test_lost_acknowledged_publish_is_noticed() -> None:
    """Promise 1."""
    history = History()
    history.publish(1, stored=False)
    with pytest.raises(PromiseBroken, match=r"promise 1.*is lost"):
        history.check()


def test_publish_stored_twice_is_noticed() -> None:
    """Promise 1: exactly once."""
    history = History()
    history.consume(1, history.publish(1))
    history.stored.append(history.stored[0]._replace(place=Place("t", "q1", 0), physical=900))
    with pytest.raises(PromiseBroken, match=r"names|twice"):
        history.check()


def test_changed_body_is_noticed_at_delivery() -> None:
    """Promise 1: byte for byte."""
    history = History()
    place = history.publish(1)
    with pytest.raises(PromiseBroken, match=r"promise 1.*changed"):
        history.ledger.delivered("g", place, "a", history.now(), uid=1, key="k", tag="", body=b"other")


def test_acked_message_that_comes_again_is_noticed() -> None:
    """Promise 2, in one life and after a kill."""
    for kill in (False, True):
        history = History()
        place = history.publish(1)
        history.consume(1, place)
        if kill:
            history.ledger.ended(power_lost=False, time=history.time)
        with pytest.raises(PromiseBroken, match="promise 2"):
            history.deliver(1, place)


def test_ack_younger_than_its_sync_may_go_with_the_power() -> None:
    """D9: 100 ms before a power loss an ack may be lost, earlier ones not."""
    history = History()
    old, young = history.publish(1, "a"), history.publish(2, "b")
    history.consume(1, old)
    history.deliver(2, young, later=0.2)
    history.answer(young)
    history.ledger.ended(power_lost=True, time=history.time)
    history.deliver(2, young)
    with pytest.raises(PromiseBroken, match="promise 2"):
        history.deliver(1, old)


def test_two_of_one_key_in_flight_are_noticed() -> None:
    """Promise 3: the second goes out while the first is unanswered and not timed out."""
    history = History()
    first, second = history.publish(1), history.publish(2)
    history.deliver(1, first)
    history.deliver(2, second, client="b")
    history.answer(first)
    history.answer(second, client="b")
    with pytest.raises(PromiseBroken, match=r"promise 3.*two in flight"):
        history.check()


@pytest.mark.parametrize(("asked_before", "broken"), [(2.5, False), (1.5, True)])
def test_what_was_read_late_counts_from_its_pull(asked_before: float, broken: bool) -> None:
    """Where only the time of reading is known, two may be read together that were out one after the other."""
    history = History()
    first = history.publish(1)
    history.deliver(1, first, asked_before=asked_before)
    history.deliver(1, first, client="b", asked_before=0.1)
    history.answer(first, client="b")
    if not broken:
        history.check()
        return
    with pytest.raises(PromiseBroken, match=r"promise 3.*two in flight"):
        history.check()


def test_success_of_another_client_does_not_end_a_delivery() -> None:
    """D12: while a newer delivery is out, the key waits for that holder."""
    history = History()
    first, second = history.publish(1), history.publish(2)
    history.deliver(1, first)
    history.deliver(1, first, client="b", later=2.5)
    history.answer(first, client="a")
    history.consume(2, second)
    with pytest.raises(PromiseBroken, match=r"promise 3.*two in flight"):
        history.check()


@pytest.mark.parametrize(
    ("repeated", "restarted", "named", "broken"),
    [
        (False, False, False, True),
        (True, False, False, False),
        (True, False, True, True),
        (False, True, False, False),
        (False, True, True, True),
    ],
)
def test_answer_of_an_earlier_delivery_ends_no_later_one(
    *, repeated: bool, restarted: bool, named: bool, broken: bool
) -> None:
    """But where D40 leaves it open: an answer given twice, or from before a restart, that names no delivery."""
    history = History()
    first, second = history.publish(1), history.publish(2)
    earlier = history.deliver(1, first)
    if repeated:
        history.answer(first, success=False, of=earlier, named=named)
    if restarted:
        history.ledger.ended(power_lost=False, time=history.time)
    present = history.deliver(1, first, later=0 if restarted else 6.0)
    history.answer(first, confirm=False, of=earlier, named=named)
    history.deliver(2, second)
    history.answer(first, of=present, named=named)
    history.answer(second)
    with pytest.raises(PromiseBroken, match="promise 3") if broken else nullcontext():
        history.check()


@pytest.mark.parametrize("named", [False, True])
def test_one_request_may_answer_a_delivery_twice(*, named: bool) -> None:
    """The node may take the second for the answer of the delivery after it, unless it names its own."""
    history = History()
    first, second = history.publish(1), history.publish(2)
    earlier = history.deliver(1, first)
    present = history.deliver(1, first, later=2.5)
    request = history.now()
    for _ in range(2):
        history.answer(first, confirm=False, of=earlier, named=named, at=request)
    history.deliver(2, second)
    history.answer(first, of=present, named=named)
    history.answer(second)
    with pytest.raises(PromiseBroken, match="promise 3") if named else nullcontext():
        history.check()


@pytest.mark.parametrize("named", [False, True])
def test_answer_may_be_one_too_many_since_a_restart(*, named: bool) -> None:
    """One from before it was taken for that of the next delivery, whose own is then taken for that of the one after."""
    history = History()
    first, second = history.publish(1), history.publish(2)
    earliest = history.deliver(1, first)
    history.ledger.ended(power_lost=False, time=history.time)
    earlier = history.deliver(1, first)
    history.answer(first, success=False, of=earliest, named=named)
    present = history.deliver(1, first, later=0 if not named else 6.0)
    history.answer(first, confirm=False, of=earlier, named=named)
    history.deliver(2, second)
    history.answer(first, of=present, named=named)
    history.answer(second)
    with pytest.raises(PromiseBroken, match="promise 3") if named else nullcontext():
        history.check()


def test_successor_before_predecessor_is_noticed() -> None:
    """Promise 3: a timed-out message is not overtaken by the next of its key."""
    history = History()
    first, second = history.publish(1), history.publish(2)
    history.deliver(1, first)
    history.deliver(2, second, later=2.5)
    history.answer(second)
    history.consume(1, first)
    with pytest.raises(PromiseBroken, match=r"promise 3.*before .* was finished"):
        history.check()


def test_predecessor_after_successor_is_noticed() -> None:
    """Promise 3: an answered message that comes again after its successor is out of order (also unconfirmed)."""
    history = History()
    first, second = history.publish(1), history.publish(2)
    history.deliver(1, first)
    history.answer(first, confirm=False)
    history.deliver(2, second)
    history.ledger.ended(power_lost=False, time=history.time)
    history.consume(1, first)
    history.consume(2, second)
    with pytest.raises(PromiseBroken, match=r"promise 3.*came again"):
        history.check()


@pytest.mark.parametrize("by_disk", [False, True])
def test_success_that_waited_for_the_node_may_go_with_the_power_unanswered(*, by_disk: bool) -> None:
    """Where the stamp is the client's, a success counts from its answer; where it is the node's, from there (D9)."""
    history = History()
    first, second = history.publish(1), history.publish(2)
    history.deliver(1, first)
    history.answer(first, confirm=False)
    history.deliver(2, second, later=4.0)
    history.ledger.ended(power_lost=True, time=history.time, seconds=0.01 if by_disk else None)
    history.consume(1, first)
    history.consume(2, second)
    with nullcontext() if by_disk else pytest.raises(PromiseBroken, match=r"promise 3.*came again"):
        history.check()


def test_success_that_was_answered_long_before_does_not_go_with_the_power() -> None:
    """Also where the disk tells the age of acks."""
    history = History()
    first = history.publish(1)
    history.consume(1, first)
    history.time += 4.0
    history.ledger.ended(power_lost=True, time=history.time, seconds=0.01)
    with pytest.raises(PromiseBroken, match="promise 2"):
        history.deliver(1, first)


@pytest.mark.parametrize(
    ("outcome", "by_disk", "broken"), [("unknown", True, False), ("unknown", False, True), ("stored", True, True)]
)
def test_part_of_a_batch_is_noticed_unless_the_power_took_the_rest_of_an_unanswered_one(
    *, outcome: str, by_disk: bool, broken: bool
) -> None:
    """Promise 1: whole or not at all; where the power left a hole in what was never synced, what is around it stays."""
    history = History()
    for uid in (1, 2):
        body = b'{"uid": %d}' % uid
        sent = Publish(uid, "t", "k", "", body, "p", True, 1, history.now(), batch=1)
        history.ledger.sent(sent)
    history.stored.append(Stored(Place("t", "q0", 0), 0, 1, "k", "", b'{"uid": 1}'))
    history.ledger.ended(power_lost=True, time=history.time, seconds=0.01 if by_disk else None)
    for publish in history.ledger.publishes.values():
        publish.outcome = outcome
    history.consume(1, history.stored[0].place)
    with pytest.raises(PromiseBroken, match="promise 1") if broken else nullcontext():
        history.check()


def test_message_dropped_without_a_dead_letter_is_noticed() -> None:
    """Promise 6: what was never answered with success has a dead letter."""
    history = History()
    history.publish(1)
    with pytest.raises(PromiseBroken, match=r"promise 6.*dropped"):
        history.check()


def test_reset_takes_messages_back_and_passes_others_over() -> None:
    """What was acknowledged comes again, in order; what was passed over need not come, and must not."""

    def moved(to: int) -> tuple[History, list[Place]]:
        history = History()
        places = [history.publish(uid) for uid in (1, 2, 3)]
        history.consume(1, places[0])
        history.ledger.reset("g", "t", {"q0": to}, history.now())
        return history, places

    history, places = moved(0)
    for uid, place in enumerate(places, 1):
        history.consume(uid, place)
    history.check()

    history, places = moved(0)
    for uid in (2, 1, 3):
        history.consume(uid, places[uid - 1])
    with pytest.raises(PromiseBroken, match="promise 3"):
        history.check()

    history, places = moved(2)
    history.consume(3, places[2])
    history.check()
    with pytest.raises(PromiseBroken, match="promise 2"):
        history.deliver(2, places[1])


def test_success_that_a_reset_has_forgotten_counts_no_more() -> None:
    """Its answer may be read after the reset."""
    history = History()
    place = history.publish(1)
    history.deliver(1, place)
    history.answer(place, confirm=False)
    before = history.now()
    history.ledger.reset("g", "t", {"q0": 0}, history.now())
    history.answer(place, confirm=False)
    history.ledger.confirmed("g", place, before)
    history.deliver(1, place)
    history.answer(place)
    with pytest.raises(PromiseBroken, match="promise 2"):
        history.deliver(1, place)


def test_reset_leaves_what_waits_in_the_retry_topic() -> None:
    """The message and its retry come both, each until its own success; the retry alone is not enough."""

    def moved() -> tuple[History, Place, Place]:
        history = History(UNORDERED)
        place = history.publish(1, "")
        history.deliver(1, place)
        history.answer(place, success=False)
        history.ledger.reset("g", "t", {"q0": 0}, history.now())
        return history, place, Place("t", "retry_0", 0)

    history, place, again = moved()
    history.consume(1, place)
    history.consume(1, again)
    history.check()
    for copy in (place, again):
        with pytest.raises(PromiseBroken, match="promise 2"):
            history.deliver(1, copy)

    history, place, again = moved()
    history.consume(1, again)
    with pytest.raises(PromiseBroken, match=r"promise 6.*only as a retry"):
        history.check()


def test_account_of_occurrences_holds_the_promises() -> None:
    """It numbers ids as they come; what was answered does not come again, and what is stored is consumed."""
    ledger = OccurrenceLedger([Subscription(group=GROUP, topic=TOPIC)])
    place, other = Place(TOPIC, "q0", 0), Place(TOPIC, "q0", 1)
    stored = [
        Stored(each, each.offset, ledger.uid_of(name, b"x"), name, "", b"x")
        for each, name in ((place, "a"), (other, "b"))
    ]

    def come(at: Place, name: str, step: int) -> None:
        uid, stamp = ledger.uid_of(name, b"x"), Stamp(step, step, step / 100, 0, asked=step)
        ledger.delivered(GROUP, at, "c", stamp, uid=uid, key=name, tag="", body=b"x")

    come(place, "a", 1)
    ledger.answered(GROUP, place, "c", Stamp(2, 2, 0.02, 0), True)
    ledger.confirmed(GROUP, place, Stamp(3, 3, 0.03, 0))
    with pytest.raises(PromiseBroken, match="promise 2"):
        come(place, "a", 4)
    with pytest.raises(PromiseBroken, match="promise 7"):
        come(place, "b", 5)
    with pytest.raises(PromiseBroken, match="promise 6"):
        ledger.check(stored, [])


def test_dead_letter_needs_reason_origin_and_attempts() -> None:
    """Promise 6: a dead letter says why and where from, comes once and not too early."""
    history = History()
    place = history.publish(1)
    body = history.ledger.publishes[1].body
    good = DeadLetter("g", place, 1, "failed 2 times", 2, body)
    history.dead = [good]
    history.check()
    for dead in (
        [good, good],
        [good._replace(reason="")],
        [good._replace(attempts=1)],
        [good._replace(origin=Place("t", "q0", 7))],
        [good._replace(body=b"")],
    ):
        history.dead = dead
        with pytest.raises(PromiseBroken, match="promise 6"):
            history.check()


def test_body_that_is_no_json_must_be_dead_lettered_undelivered() -> None:
    """Promise 6: a group that parses JSON never sees what is none."""
    history = History(JSON)
    place = history.publish(1, json=False)
    with pytest.raises(PromiseBroken, match="promise 6"):
        history.check()
    history.dead = [DeadLetter("j", place, 1, "malformed", 0, history.ledger.publishes[1].body)]
    history.check()
    history.deliver(1, place, group="j")
    with pytest.raises(PromiseBroken, match="promise 6"):
        history.check()


def test_reused_offset_is_noticed() -> None:
    """Promise 7: an offset that named one message cannot name another."""
    history = History()
    place = history.publish(1)
    history.publish(2, stored=False, outcome="unknown")
    with pytest.raises(PromiseBroken, match="promise 7"):
        history.deliver(2, place)


def test_refused_message_that_appears_is_noticed() -> None:
    """Promise 7: a refusal changes nothing."""
    history = History()
    history.publish(1, outcome="refused")
    with pytest.raises(PromiseBroken, match="promise 7"):
        history.check()
