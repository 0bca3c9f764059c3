"""That the account of a chaos run finds what is wrong: each kind, put in by hand."""

from __future__ import annotations

from tests.kafka.chaos_account import ChaosAccount, Place
from tests.kafka.chaos_changing import ChangesAccount
from tests.kafka.fencing import Stored, last_of_each_producer


def account(*, looks: bool = True) -> ChaosAccount:
    """One with three messages of a key, and looks at the coordinator every tenth of a second: `a` has it."""
    found = ChaosAccount("g", "t", near_seconds=1.0, session_seconds=6.0, timeout_seconds=5.0)
    for number in range(3):
        found.acknowledged(("k", found.sent("k")), 0, number)
        found.stored(("k", number), 0, number)
    for event in found.journal.events:
        # Before all that follows, which has times of its own.
        event.update(t=0.0, n=0, turn=0)
    for tenth in range(100 if looks else 0):
        found.looked(tenth / 10, {0: "a"})
    return found


def finish(found: ChaosAccount, number: int, node: str, at: float) -> Place:
    """Hand one out and answer it."""
    place = ("k", number)
    found.take(place, node, 0, at, at + 0.01, number)
    found.done(place, node, at + 0.015, success=True)
    found.answered([place], node, at + 0.02)
    return place


def finish_all(found: ChaosAccount, node: str = "a", at: float = 1.0) -> None:
    """Hand out and answer all three, a tenth of a second after each other."""
    for number in range(3):
        finish(found, number, node, at + number / 10)


def rules(found: ChaosAccount) -> set[str]:
    """Return the rules that the history breaks."""
    return {each.partition(":")[0] for each in found.verdict().faults}


def test_run_without_faults_passes() -> None:
    """A failed message comes again first."""
    found = account()
    finish(found, 0, "a", 1.0)
    found.take(("k", 1), "a", 0, 2.0, 2.01, 1)
    found.done(("k", 1), "a", 2.02, success=False)
    finish(found, 1, "a", 3.0)
    finish(found, 2, "a", 4.0)
    verdict = found.verdict()
    assert verdict.passed, verdict
    assert (verdict.sent, verdict.handed_out, verdict.looks) == (3, 4, 100)


def test_lost_message_is_found() -> None:
    """One that was never answered, one that the topic does not hold, and one that Kafka never acknowledged."""
    found = account()
    finish(found, 0, "a", 1.0)
    finish(found, 1, "a", 2.0)
    assert rules(found) == {"unseen"}
    found = account()
    finish_all(found)
    found.acknowledged(("l", found.sent("l")), 1, 0)
    found.sent("l")
    verdict = found.verdict()
    assert (verdict.unsent, verdict.passed) == (1, False)
    assert [each.partition(":")[0] for each in verdict.faults] == ["lost_write"]


def test_disorder_is_found() -> None:
    """A later one before an earlier was answered; two of a key out at once at a node."""
    found = account()
    finish(found, 1, "a", 1.0)
    finish(found, 0, "a", 2.0)
    finish(found, 2, "a", 3.0)
    assert rules(found) == {"key_overtaken"}
    found = account()
    finish(found, 0, "a", 1.0)
    for number in (1, 2):
        found.take(("k", number), "a", 0, 1.2, 1.3, number)
    finish(found, 1, "a", 2.0)
    finish(found, 2, "a", 3.0)
    assert {"key_overtaken", "two_holders"} <= rules(found)


def test_what_came_again_after_a_kill_is_forgiven_and_its_order_is_not() -> None:
    """What follows an answer that was lost comes again behind it."""
    for overtaken in (False, True):
        found = account()
        finish_all(found)
        found.away("a", 1.3)
        for at, number in enumerate((1, 0, 2) if overtaken else (0, 1, 2)):
            finish(found, number, "b", 20.0 + at)
        assert rules(found) == set()
        assert found.verdict().again == 3
    found = account()
    finish(found, 0, "a", 1.0)
    found.away("a", 1.3)
    finish(found, 2, "b", 20.0)
    finish(found, 1, "b", 21.0)
    assert rules(found) == {"key_overtaken"}


def test_hand_out_after_the_loss_is_found() -> None:
    """By a node that Kafka says has not had the partition all the while; not where it just got or gave it."""
    found = account()
    finish(found, 0, "b", 1.0)
    assert len(found.verdict().after_loss) == 1
    found = account(looks=False)
    for at, owner in ((1.0, "b"), (1.1, "a"), (1.2, "b")):
        found.looked(at, {0: owner})
    finish_all(found, at=1.05)
    assert found.verdict().passed


def test_node_that_woke_is_judged_from_then_on() -> None:
    """It was asked before it stood still; nothing can have left it before it woke."""
    found = account()
    outage = found.away("b", 2.0)
    outage.ended = 5.0
    found.take(("k", 0), "b", 0, 1.99, 5.05, 0)
    assert len(found.verdict().after_loss) == 1


def test_repeats_are_near_a_fault_or_unforgiven() -> None:
    """By the node that took the answer, and when."""
    for node, began, ended, forgiven in (
        ("a", 1.25, 99.0, True), ("a", 8.0, 99.0, False), ("b", 1.25, 99.0, False), ("", 0.9, 1.5, True),
    ):  # fmt: skip
        found = account()
        finish_all(found)
        found.away(node, began).ended = ended
        finish(found, 2, "c", 100.0)
        assert rules(found) == (set() if forgiven else {"undone_ack"}), (node, began)


def test_answer_that_was_committed_may_not_come_again() -> None:
    """Whatever became of its node: by the offset, or by what is finished above it."""
    for said in ((3, ()), (0, ((2, 3),))):
        found = account(looks=False)
        finish_all(found)
        found.looked(1.25, {0: "a"}, {0: said})
        found.away("a", 1.3)
        finish(found, 2, "b", 2.0)
        assert rules(found) == {"undone_commit"}


def test_answer_while_the_group_is_shared_out_is_told_apart() -> None:
    """By other owners, or by the coordinator's word; a node that is stopped in order has waited for its commit."""
    for owner, is_stable, stops, forgiven in (
        ("b", True, False, True), ("a", False, False, True), ("a", True, False, False), ("b", False, True, False),
    ):  # fmt: skip
        found = account(looks=False)
        for at, who in ((0.9, "a"), (1.3, owner), (1.4, "a")):
            found.looked(at, {0: who}, is_stable=is_stable or at != 1.3)
        finish_all(found)
        if stops:
            found.stopped("a", 3.0)
        else:
            found.away("a", 3.0)
        finish(found, 2, "b", 4.0)
        assert rules(found) == (set() if forgiven else {"undone_ack"}), (owner, is_stable, stops)


def test_node_that_ended_by_itself_is_a_fault() -> None:
    """By its name, with what it said last."""
    found = account()
    found.ended("a", "-6, an assertion")
    verdict = found.verdict()
    assert (verdict.ended, verdict.passed) == (["a has ended by itself: -6, an assertion"], False)


def test_time_until_an_answer_is_committed_is_measured() -> None:
    """As the coordinator's looks show it."""
    found = account()
    finish(found, 0, "a", 1.0)
    found.looked(1.2, {0: "a"}, {0: (0, ())})
    found.looked(1.5, {0: "a"}, {0: (1, ())})
    assert found.verdict().commit_ms == (480, 480, 480)


def changed(*, handed_out: tuple[int, ...] = (0, 1), offset: int = 1) -> list[str]:
    """Return the rules that a history of two messages of a key in a topic that changes breaks."""
    found = ChangesAccount()
    for number, at in ((found.sent("k"), 0), (found.sent("k"), offset)):
        found.stored(number, 0, 0, at)
    for turn, number in enumerate(handed_out):
        found.take(number, turn + 1.0)
        found.done(number, turn + 1.5)
    return [each.partition(":")[0] for each in found.verdict().faults]


def test_topic_that_changes_is_judged_as_any_other() -> None:
    """Lost, out of order, or two messages at one offset; what was deleted need not come."""
    assert changed() == []
    assert changed(handed_out=(0,)) == ["unseen"]
    assert changed(handed_out=(1, 0)) == ["key_overtaken", "key_overtaken"]
    assert "inconsistent_offset" in changed(offset=0)
    found = ChangesAccount()
    found.stored(found.sent("k"), 0, 0, 0)
    found.begins_at(0, 1)
    assert (found.verdict().passed, found.verdict().deleted) == (True, 1)


def test_producer_id_is_taken_once_until_its_node_has_sent_again() -> None:
    """Kafka takes the same records in the same epoch for a repetition and stores none: they were never to arrive."""
    of_node, of_fence = Stored(1, 7, 0, b""), Stored(2, 7, 1, b"")
    assert last_of_each_producer([of_node, Stored(3, -1, -1, b"")]) == [of_node]
    assert last_of_each_producer([of_node, of_fence]) == [of_fence]
    assert last_of_each_producer([of_node, of_fence, of_node._replace(epoch=2)]) == [of_node._replace(epoch=2)]
