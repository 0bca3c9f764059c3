"""Decisions: who is answered what, when, and what a decision that cannot be made leaves behind."""

from __future__ import annotations

from functools import partial
from random import Random

import pytest

from broker.log.put import Put
from broker.transaction import metrics as counted
from broker.transaction.names import State, parse_handle
from broker.transaction.outcomes import End, EndOutcome
from pyddmq.testing import SimSyncs
from tests.integration.store_tools import HOST
from tests.integration.transaction_tools import GROUP, TOPIC, Broker, broker
from tests.integration.waiting_tools import flush_in_background


def refused(made: Broker, end: End) -> int:
    """How often that refusal was counted."""
    return made.metrics.value(counted.REFUSED, end.value)


def test_decision_is_answered_when_it_is_durable_and_not_before() -> None:
    """A commit's message is not seen either while its sync is on its way; who decides the same again waits with it."""
    made = broker()
    handle = made.half(b"x")
    # The first sync takes 0.85 s.
    syncs = SimSyncs(made.disk, made.scheduler, Random(1), seconds_max=1.0)
    flush_in_background(made.store, syncs, made.scheduler)
    reported: list[tuple[str, End]] = []

    def note(name: str, outcome: EndOutcome) -> None:
        reported.append((name, outcome.end))

    for name in ("first", "again"):
        made.transactions.end(handle, group=GROUP, state=State.COMMIT, done=partial(note, name))
    made.scheduler.advance(0.8)
    assert (reported, made.visible(), made.undecided) == ([], [], 1)
    made.scheduler.advance(0.2)
    assert (reported, made.visible(), made.undecided) == (
        [("first", End.OK), ("again", End.ALREADY_SAME)],
        [b"x"],
        0,
    )


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "is not a valid transaction handle"),
        ("nonsense", "is not a valid transaction handle"),
        ("x" * 5_000, "is not a valid transaction handle"),
        ("A" * 80, "is not a valid transaction handle"),
    ],
)
def test_text_that_is_no_handle_is_refused_in_a_bounded_sentence(text: str, said: str) -> None:
    """However long it is; it is counted, and nothing is stored."""
    made = broker()
    made.half(b"x")
    end = made.store.end
    outcome = made.commit(text)
    assert (outcome.end, said in outcome.text, len(outcome.text) < 200) == (End.UNKNOWN_HANDLE, True, True)
    assert (made.store.end, refused(made, End.UNKNOWN_HANDLE)) == (end, 1)


def test_handle_and_id_of_different_transactions_decide_neither() -> None:
    """A producer that mixes two up is told so, and both stay as they are."""
    made = broker()
    one, other = made.half(b"1"), made.half(b"2")
    parsed = parse_handle(other)
    assert parsed is not None
    outcome = made.commit(one, transaction_id=parsed.transaction_id)
    assert (outcome.end, outcome.text) == (
        End.UNKNOWN_HANDLE,
        "handle and transactionId are of different transactions",
    )
    assert (made.undecided, made.visible()) == (2, [])


def test_group_of_another_producer_is_named_to_who_asks() -> None:
    """So that a wrong configuration is seen at once; an administrator needs no group."""
    made = broker()
    handle = made.half(b"x")
    outcome = made.commit(handle, group="other")
    assert outcome.end is End.WRONG_GROUP
    assert "'g'" in outcome.text
    assert "'other'" in outcome.text
    found: list[EndOutcome] = []
    made.transactions.decide(handle, State.COMMIT, found.append)
    made.scheduler.run_until_idle()
    assert [each.end for each in found] == [End.OK]


@pytest.mark.parametrize(
    ("spoil", "why"),
    [
        (lambda made: made.store.topics.pop(TOPIC), "does not exist; create it"),
        (
            lambda made: setattr(made.store.topics[TOPIC], "queues", made.store.topics[TOPIC].queues[:0]),
            "has no queue 0",
        ),
    ],
)
def test_commit_without_a_place_says_what_is_missing(spoil: object, why: str) -> None:
    """The half stays undecided and can be rolled back; nothing is counted as committed."""
    made = broker()
    handle = made.half(b"x")
    assert callable(spoil)
    spoil(made)
    outcome = made.commit(handle)
    assert (outcome.end, why in outcome.text) == (End.REFUSED, True), outcome.text
    assert (made.undecided, refused(made, End.REFUSED)) == (1, 1)
    assert made.metrics.value(counted.COMMITTED, TOPIC) == 0
    assert made.roll_back(handle).end is End.OK


def test_half_for_a_topic_of_the_brokers_own_is_never_committed_there() -> None:
    """A record with such a topic can only be foreign: what the broker keeps there would be broken by it."""
    made = broker()
    made.store.create_topic("RMQ_SYS_own", 1, system=True)
    own = made.transactions.half(Put(made.store.topics[TOPIC], 0, b"x", b""), group=GROUP)
    [position] = made.store.append(
        [own._replace(properties=own.properties.replace(b"REAL_TOPIC\x01t\x02", b"REAL_TOPIC\x01RMQ_SYS_own\x02"))],
        born_ms=1,
        born_host=HOST,
    )
    made.store.flush()
    outcome = made.commit(made.transactions.handle_of(position))
    assert (outcome.end, "internal topic" in outcome.text) == (End.REFUSED, True), outcome.text


def test_unknown_leaves_everything_open_and_says_ok() -> None:
    """It is the producer's word that it cannot tell yet: kept for people, and nothing is written."""
    made = broker()
    handle = made.half(b"x")
    end = made.store.end
    assert made.end(handle, State.UNKNOWN, remark="the bank is silent") == EndOutcome(End.OK)
    assert (made.undecided, made.store.end) == (1, end)
    assert made.commit(handle).end is End.OK
    assert made.end(handle, State.UNKNOWN) == EndOutcome(End.ALREADY_SAME, decided=State.COMMIT)


def test_commits_are_told_once_each_with_their_topic_and_size() -> None:
    """For the figures of what was published; a rollback and a repeated commit are no publish."""
    made = broker()
    seen: list[tuple[str, int]] = []
    made.transactions.on_committed(lambda topic, size: seen.append((topic, size)))
    one, other = made.half(b"12345"), made.half(b"x")
    made.commit(one)
    made.commit(one)
    made.roll_back(other)
    assert seen == [(TOPIC, 5)]
    assert made.metrics.value(counted.COMMITTED, TOPIC) == 1
    assert made.metrics.value(counted.ROLLED_BACK, TOPIC) == 1


@pytest.mark.parametrize("state", [State.COMMIT, State.ROLLBACK])
def test_decision_that_the_disk_loses_is_answered_as_failed(state: State) -> None:
    """To everyone who waits for it; what became of it is known after a restart."""
    made = broker()
    handle = made.half(b"x")
    reported: list[End] = []
    for _ in range(2):
        made.transactions.end(handle, group=GROUP, state=state, done=lambda outcome: reported.append(outcome.end))
    made.disk.fail("sync")
    made.scheduler.run_until_idle()
    assert reported == [End.FAILED, End.FAILED]
    assert not made.transactions.halves.is_busy(0)


def test_decision_made_long_ago_is_told_from_the_op_records() -> None:
    """Its bits are gone when all before the saved position is decided; the log still says how each ended."""
    made = broker()
    handles = [made.half(b"%d" % number) for number in range(4)]
    for number, handle in enumerate(handles):
        made.end(handle, State.ROLLBACK if number % 2 else State.COMMIT)
    made.close()
    made = broker(made.disk, made.clock)
    assert made.undecided == 0
    for number, handle in enumerate(handles):
        first = State.ROLLBACK if number % 2 else State.COMMIT
        assert made.transactions.halves.states.get(number) is None, "its bits are to be gone"
        assert made.end(handle, first) == EndOutcome(End.ALREADY_SAME, decided=first)
        outcome = made.end(handle, State.COMMIT if number % 2 else State.ROLLBACK)
        assert (outcome.end, outcome.decided) == (End.ALREADY_OTHER, first)
    assert made.visible() == [b"0", b"2"]
