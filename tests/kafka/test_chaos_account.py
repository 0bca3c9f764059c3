"""That the account of a chaos run finds what is wrong: each kind, put in by hand."""

from __future__ import annotations

from tests.kafka.chaos_account import ChaosAccount, Place
from tests.kafka.fencing import Stored, last_of_each_producer


def account() -> ChaosAccount:
    """One with three messages of a key, and looks at the coordinator every tenth of a second: `a` has it."""
    found = ChaosAccount(near_seconds=1.0, session_seconds=6.0)
    for _ in range(3):
        found.acknowledged(("k", found.sent("k")))
    for tenth in range(100):
        found.looked(tenth / 10, {0: "a"})
    return found


def finish(found: ChaosAccount, number: int, node: str, at: float) -> Place:
    """Hand one out and answer it."""
    place = ("k", number)
    found.take(place, node, 0, at, at + 0.01, number)
    found.done(place, node, success=True)
    found.answered([place], node, at + 0.02)
    return place


def test_run_without_faults_passes() -> None:
    """A failed message comes again first."""
    found = account()
    finish(found, 0, "a", 1.0)
    found.take(("k", 1), "a", 0, 2.0, 2.01)
    found.done(("k", 1), "a", success=False)
    finish(found, 1, "a", 3.0)
    finish(found, 2, "a", 4.0)
    verdict = found.verdict()
    assert verdict.passed, verdict
    assert (verdict.sent, verdict.handed_out, verdict.looks) == (3, 4, 100)


def test_lost_message_is_found() -> None:
    """One that was never answered, and one that Kafka never acknowledged."""
    found = account()
    finish(found, 0, "a", 1.0)
    found.sent("k")
    verdict = found.verdict()
    assert (verdict.lost, verdict.unsent, verdict.passed) == ([("k", 1), ("k", 2)], 1, False)


def test_disorder_is_found() -> None:
    """Left out; or two of a key out at once at a node."""
    found = account()
    finish(found, 1, "a", 1.0)
    assert len(found.verdict().disorder) == 1
    found = account()
    found.take(("k", 0), "a", 0, 1.0, 1.1)
    found.done(("k", 0), "a", success=True)
    found.take(("k", 1), "a", 0, 1.2, 1.3)
    found.take(("k", 2), "a", 0, 1.2, 1.3)
    assert len(found.verdict().disorder) == 2


def test_key_that_went_back_goes_on_from_there() -> None:
    """What follows an answer that comes again may not be left out."""
    for skipped in (False, True):
        found = account()
        for number in range(3):
            finish(found, number, "a", 1.0 + number / 10)
        found.away("a", 1.3)
        finish(found, 0, "a", 2.0)
        if not skipped:
            finish(found, 1, "a", 2.1)
        finish(found, 2, "a", 2.2)
        assert (len(found.verdict().disorder) > 0) is skipped


def test_hand_out_after_the_loss_is_found() -> None:
    """By a node that Kafka says has not had the partition all the while; not where it just got or gave it."""
    found = account()
    finish(found, 0, "b", 1.0)
    assert len(found.verdict().after_loss) == 1
    found = ChaosAccount(near_seconds=1.0, session_seconds=6.0)
    found.acknowledged(("k", found.sent("k")))
    for at, owner in ((1.0, "b"), (1.1, "a"), (1.2, "b")):
        found.looked(at, {0: owner})
    finish(found, 0, "a", 1.05)
    assert found.verdict().passed


def test_node_that_woke_is_judged_from_then_on() -> None:
    """It was asked before it stood still; nothing can have left it before it woke."""
    found = account()
    outage = found.away("b", 2.0)
    outage.ended = 5.0
    found.take(("k", 0), "b", 0, 1.99, 5.05)
    assert len(found.verdict().after_loss) == 1


def test_repeats_are_near_a_fault_or_unforgiven() -> None:
    """By the node that took the answer, and when."""
    found = account()
    finish(found, 0, "a", 1.0)
    found.away("a", 1.05)
    finish(found, 0, "a", 2.0)
    verdict = found.verdict()
    assert (verdict.near, verdict.near_100ms, verdict.unforgiven) == (1, 1, [])
    for node, at in (("a", 8.0), ("b", 1.05)):
        found = account()
        finish(found, 0, "a", 1.0)
        found.away(node, at)
        finish(found, 0, "a", 9.0)
        assert len(found.verdict().unforgiven) == 1
    found = account()
    found.away("", 0.9).ended = 1.5
    finish(found, 0, "a", 1.0)
    finish(found, 0, "a", 9.0)
    assert (found.verdict().across_kafka, found.verdict().unforgiven) == (1, [])


def test_answer_that_was_committed_may_not_come_again() -> None:
    """Whatever became of its node: by the offset, or by what is finished above it."""
    for said in ((1, ()), (0, ((0, 1),))):
        found = account()
        finish(found, 0, "a", 1.0)
        found.looked(1.2, {0: "a"}, {0: said})
        found.away("a", 1.3)
        finish(found, 0, "a", 2.0)
        verdict = found.verdict()
        assert (verdict.near, len(verdict.unforgiven), verdict.passed) == (0, 1, False)
        assert "committed by 1.200" in verdict.unforgiven[0]


def test_node_that_was_stopped_in_order_forgives_nothing() -> None:
    """And it is said that it was."""
    found = account()
    finish(found, 0, "a", 1.0)
    found.stopped("a", 1.1)
    finish(found, 0, "b", 2.0)
    [text] = found.verdict().unforgiven
    assert "it was stopped 0.080 s later" in text


def test_node_that_ended_by_itself_is_a_fault() -> None:
    """By its name, with what it said last."""
    found = account()
    found.ended("a", "-6, an assertion")
    verdict = found.verdict()
    assert (verdict.ended, verdict.passed) == (["a has ended by itself: -6, an assertion"], False)


def test_answer_while_the_group_is_shared_out_is_told_apart() -> None:
    """The coordinator had other owners in the time from the answer until its node went."""
    for owner in ("a", "b"):
        found = ChaosAccount(near_seconds=0.1, session_seconds=6.0)
        found.acknowledged(("k", found.sent("k")))
        for at, who in ((0.9, "a"), (1.1, owner), (1.3, "a"), (1.6, "a")):
            found.looked(at, {0: who})
        finish(found, 0, "a", 1.0)
        found.away("a", 1.5)
        finish(found, 0, "a", 2.0)
        verdict = found.verdict()
        assert (verdict.shared, len(verdict.unforgiven)) == ((1, 0) if owner == "b" else (0, 1))


def test_node_that_stops_in_order_has_waited_for_its_commit() -> None:
    """That the group was being shared out, as the coordinator says, is an excuse for one that died alone."""
    for stops in (False, True):
        found = ChaosAccount(near_seconds=0.1, session_seconds=6.0)
        found.acknowledged(("k", found.sent("k")))
        for at in (0.9, 1.1, 1.3, 1.6):
            found.looked(at, {0: "a"}, is_stable=at != 1.3)
        finish(found, 0, "a", 1.0)
        if stops:
            found.stopped("a", 1.5)
        else:
            found.away("a", 1.5)
        finish(found, 0, "a", 2.0)
        verdict = found.verdict()
        assert (verdict.shared, len(verdict.unforgiven)) == ((0, 1) if stops else (1, 0))


def test_time_until_an_answer_is_committed_is_told() -> None:
    """As the coordinator's looks show it."""
    found = account()
    finish(found, 0, "a", 1.0)
    found.looked(1.2, {0: "a"}, {0: (0, ())})
    found.looked(1.5, {0: "a"}, {0: (1, ())})
    assert found.verdict().commit_ms == (480, 480, 480)


def test_producer_id_is_taken_once_until_its_node_has_sent_again() -> None:
    """Kafka takes the same records in the same epoch for a repetition and stores none: they were never to arrive."""
    of_node, of_fence = Stored(1, 7, 0, b""), Stored(2, 7, 1, b"")
    assert last_of_each_producer([of_node, Stored(3, -1, -1, b"")]) == [of_node]
    assert last_of_each_producer([of_node, of_fence]) == [of_fence]
    assert last_of_each_producer([of_node, of_fence, of_node._replace(epoch=2)]) == [of_node._replace(epoch=2)]
