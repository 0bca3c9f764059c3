"""Transactions over a store: invisible until committed, decided once, checked while undecided."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from random import Random
from typing import Any

import pytest

from broker.errors import MessageRefused
from broker.format.properties import parse_properties
from broker.log.put import Put
from broker.query import at_offset
from broker.transaction import metrics as counted
from broker.transaction.halves import REMARK_CHARS_MAX, REMARKS_MAX
from broker.transaction.names import DISCARD_TOPIC, HALF_TOPIC, OP_TOPIC, State
from broker.transaction.outcomes import End, EndOutcome
from broker.transaction.settings import CheckSettings
from pyddmq.testing import SimDisk
from tests.integration.store_tools import ROOT
from tests.integration.transaction_tools import GROUP, TOPIC, broker


def test_half_is_invisible_until_its_commit() -> None:
    """RocketMQ's half in its topic; the commit has the message as it was sent, and names the half."""
    made = broker()
    handle = made.half(b"x", block=b"KEYS\x01k\x02TAGS\x01a\x02mine\x011\x02")
    assert made.visible() == []
    half = at_offset(made.store, HALF_TOPIC, 0, 0)
    key = half.unique_key
    assert half.properties == {
        "KEYS": "k",
        "TAGS": "a",
        "mine": "1",
        "TRAN_MSG": "true",
        "PGROUP": GROUP,
        "REAL_TOPIC": TOPIC,
        "REAL_QID": "0",
        "__transactionId__": key,
        "UNIQ_KEY": key,
    }
    assert half.sys_flag == 0
    assert made.commit(handle).end is End.OK
    message = at_offset(made.store, TOPIC, 0, 0)
    assert message.properties == {"KEYS": "k", "TAGS": "a", "mine": "1", "UNIQ_KEY": key}
    assert (message.sys_flag, message.flag, message.born_ms) == (8, 7, half.born_ms)
    assert message.prepared_offset == (half.physical or -1)
    op = at_offset(made.store, OP_TOPIC, 0, 0)
    assert (op.body(), op.properties["TAGS"], op.properties["__PYDDMQ_DECISIONS"]) == (b"0,", "d", "c")
    assert made.undecided == 0


def test_rollback_is_an_op_record_and_nothing_else() -> None:
    """Nothing of it is ever seen."""
    made = broker()
    handle = made.half(b"x")
    end = made.store.end
    assert made.roll_back(handle).end is End.OK
    assert made.visible() == []
    op = at_offset(made.store, OP_TOPIC, 0, 0)
    assert (op.physical, op.body(), op.properties["__PYDDMQ_DECISIONS"]) == (end, b"0,", "r")
    assert op.physical + op.size == made.store.end


@pytest.mark.parametrize("kill", [False, True])
@pytest.mark.parametrize("first", [State.COMMIT, State.ROLLBACK])
def test_decision_is_final(first: State, kill: bool) -> None:
    """The same again stores nothing; the other is refused and names the first, also after a kill."""
    made = broker()
    handle = made.half(b"x")
    other = State.ROLLBACK if first is State.COMMIT else State.COMMIT
    made.end(handle, first)
    made = made.again() if kill else made
    end = made.store.end
    again, against = made.end(handle, first), made.end(handle, other)
    assert (again.end, again.decided) == (End.ALREADY_SAME, first)
    assert (against.end, against.decided) == (End.ALREADY_OTHER, first)
    assert made.store.end == end
    assert len(made.visible()) == (first is State.COMMIT)


@pytest.mark.parametrize("without", [(), ("pyddmq/transactions.json",)])
def test_commit_whose_message_a_power_loss_took_has_not_been(without: tuple[str, ...]) -> None:
    """Its op record behind it says that it was: the half is undecided, and can be committed."""
    made = broker()
    made.half(b"other")
    handle = made.half(b"x")
    made.scheduler.advance(6)
    commit = made.store.end
    assert made.commit(handle).end is End.OK
    made.leave()
    made.disk.kill()
    made.disk.flip_bit(f"{ROOT}/commitlog/{0:020d}", commit + 89)
    made = broker(made.disk, made.clock)
    for _ in range(2):
        assert made.undecided == 2
        made = made.again(without=without)
    assert made.commit(handle).end is End.OK
    made = made.again(without=without)
    assert (made.visible()[-1], made.undecided) == (b"x", 1)


def test_half_in_the_place_of_one_that_a_power_loss_took_is_not_decided_with_it() -> None:
    """An op record behind the hole names the half that is gone by its offset, which another one has now."""
    made = broker()
    made.half(b"first")
    half = made.store.end
    made.roll_back(made.half(b"lost"))
    made.leave()
    made.disk.kill()
    made.disk.flip_bit(f"{ROOT}/commitlog/{0:020d}", half + 89)
    made = broker(made.disk, made.clock)
    handle = made.half(b"second")
    for _ in range(2):
        made = made.again()
    assert made.undecided == 2
    assert made.commit(handle).end is End.OK
    assert made.visible() == [b"second"]


def test_both_decisions_in_one_turn_end_in_the_first() -> None:
    """Who comes second is answered by what became durable."""
    made = broker()
    handle = made.half(b"x")
    found: list[tuple[str, End]] = []

    def reported(name: str, outcome: EndOutcome) -> None:
        found.append((name, outcome.end))

    for name, state in (("a", State.ROLLBACK), ("b", State.COMMIT), ("c", State.ROLLBACK)):
        made.transactions.end(handle, group=GROUP, state=state, done=partial(reported, name))
    assert found == []
    made.scheduler.run_until_idle()
    assert sorted(found) == [("a", End.OK), ("b", End.ALREADY_OTHER), ("c", End.ALREADY_SAME)]
    assert made.visible() == []


def test_decisions_of_a_turn_share_an_op_record() -> None:
    """A hundred commits and rollbacks: one record, a letter for each."""
    made = broker(segment_bytes=65536)
    handles = [made.half(b"%d" % number) for number in range(100)]
    for number, handle in enumerate(handles):
        state = State.COMMIT if number % 3 else State.ROLLBACK
        made.transactions.end(handle, group=GROUP, state=state, done=lambda _: None)
    made.scheduler.run_until_idle()
    op = at_offset(made.store, OP_TOPIC, 0, 0)
    assert op.body() == b"".join(b"%d," % number for number in range(100))
    assert op.properties["__PYDDMQ_DECISIONS"] == "".join("c" if number % 3 else "r" for number in range(100))
    assert made.store.topics[OP_TOPIC].queues[0].max_offset == 1


def test_what_does_not_fit_is_refused() -> None:
    """Another group, another id, no handle, a handle of nothing."""
    made = broker()
    handle = made.half(b"x")
    assert made.commit(handle, group="h").end is End.WRONG_GROUP
    assert made.commit(handle, transaction_id="other").end is End.UNKNOWN_HANDLE
    assert made.commit("nonsense").end is End.UNKNOWN_HANDLE
    assert made.commit("7-4096-id").end is End.UNKNOWN_HANDLE
    assert made.end(handle, State.UNKNOWN, remark="later").end is End.OK
    assert made.undecided == 1


def test_remark_of_a_half_is_kept_until_it_is_decided() -> None:
    """That of execute too, before the first check, and when later answers have no words; bounded in number."""
    made = broker()
    checks = made.transactions.halves.checks
    handle = made.half(b"x")
    made.end(handle, State.UNKNOWN, remark="the bank's line is dead")
    made.end(handle, State.UNKNOWN)
    assert list(checks.remarks.values()) == ["the bank's line is dead"]
    made.commit(handle)
    assert checks.remarks == {}
    for offset in range(REMARKS_MAX + 2):
        checks.remark(offset, "x" * 10_000)
    assert (len(checks.remarks), min(checks.remarks), len(checks.remarks[2])) == (REMARKS_MAX, 2, REMARK_CHARS_MAX)


def test_commit_that_has_no_topic_leaves_the_half_undecided() -> None:
    """It is committed once the topic is there again."""
    made = broker()
    made.store.create_topic("gone", 1)
    handle = made.half(b"x", topic="gone")
    made.store.topic_changes.delete("gone")
    assert made.commit(handle).end is End.REFUSED
    assert made.undecided == 1
    made.store.create_topic("gone", 1)
    assert made.commit(handle).end is End.OK
    assert made.visible("gone") == [b"x"]


def test_commit_starts_the_delay() -> None:
    """A level runs from the commit, not from the half; RocketMQ's name for it does not stand in the half."""
    made = broker()
    handle = made.half(b"x", delay_level=2)
    assert "DELAY" not in at_offset(made.store, HALF_TOPIC, 0, 0).properties
    made.scheduler.advance(100)
    assert made.commit(handle).end is End.OK
    assert made.visible() == []
    made.scheduler.advance(4.9)
    assert made.visible() == []
    made.scheduler.advance(0.2)
    assert made.visible() == [b"x"]
    assert made.commit(handle).end is End.ALREADY_SAME


def test_burst_of_checks_comes_into_line_in_small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """As small as the step size says; those that are asked about again do not wait for all that are new."""
    made = broker()
    for number in range(100):
        made.half(b"%d" % number)
    made.scheduler.advance(6.1)
    assert len(made.transactions.fetch_checks(GROUP, 1000)) == 100
    made.scheduler.advance(24.0)
    made.transactions.step_size.most = 16
    for number in range(100, 300):
        made.half(b"%d" % number)
    sizes: list[int] = []
    monkeypatch.setattr(made.transactions.step_size, "end", sizes.append)
    made.scheduler.advance(6.0)
    both = [check.times for check in made.transactions.fetch_checks(GROUP, 1000)]
    assert sorted(both) == [1] * 200 + [2] * 100
    assert 2 in both[:50]
    assert max(sizes) <= 16 + 2 * 4


def test_checks_come_when_due_and_one_poller_has_each() -> None:
    """After 6 s, then every 30 s, each to one poller, whole, with its count."""
    made = broker()
    woken: list[int] = []
    made.transactions.on_checks(GROUP, lambda: woken.append(1))
    handle = made.half(b"body", block=b"KEYS\x01k\x02")
    made.scheduler.advance(5.9)
    assert made.transactions.fetch_checks(GROUP, 10) == []
    made.scheduler.advance(0.2)
    assert woken == [1]
    assert made.transactions.fetch_checks("other", 10) == []
    [check] = made.transactions.fetch_checks(GROUP, 10)
    assert made.transactions.fetch_checks(GROUP, 10) == []
    assert (check.handle, check.times, check.topic, check.queue_id, check.body, check.key) == (
        handle,
        1,
        TOPIC,
        0,
        b"body",
        "k",
    )
    assert parse_properties(check.properties) == {"KEYS": "k", "UNIQ_KEY": check.transaction_id}
    made.scheduler.advance(29.9)
    assert made.transactions.fetch_checks(GROUP, 10) == []
    made.scheduler.advance(0.2)
    [check] = made.transactions.fetch_checks(GROUP, 10)
    assert check.times == 2
    made.transactions.give_back(check)
    [check] = made.transactions.fetch_checks(GROUP, 10)
    assert check.times == 2
    assert made.end(check.handle, State.COMMIT, from_check=True).end is End.OK
    made.scheduler.advance(100)
    assert made.transactions.fetch_checks(GROUP, 10) == []


def test_a_check_writes_nothing_to_the_log() -> None:
    """Ten checks, and the log is as long as before."""
    made = broker()
    made.half(b"x" * 1000)
    end = made.store.end
    for _ in range(10):
        made.scheduler.advance(40)
        assert len(made.transactions.fetch_checks(GROUP, 1)) == 1
    assert made.store.end == end


@pytest.mark.parametrize("stop", [SimDisk.kill, lambda disk: disk.crash(Random(1), modes=("none",))])
def test_a_kill_forgets_one_check_of_a_half_at_most(stop: Callable[[SimDisk], None]) -> None:
    """The one of the last 5 s; so many kills, so many checks beyond the maximum, and no more."""
    checks = CheckSettings(interval_ms=5000, checks_max=3)
    made = broker(checks=checks)
    made.half(b"x")
    made.scheduler.advance(7)
    seen = []
    for kill_after in (1.0, 4.0, 5.5, 5.5, 5.5):
        [check] = made.transactions.fetch_checks(GROUP, 1)
        seen.append(check.times)
        made.scheduler.advance(kill_after)
        made = made.again(stop=stop, checks=checks)
        made.scheduler.advance(5.5)
    assert seen == [1, 1, 1, 2, 3]
    assert (made.undecided, made.transactions.fetch_checks(GROUP, 1)) == (0, [])


def test_fifteen_checks_then_discard() -> None:
    """Counts survive stops; the sixteenth is none: the half goes to RocketMQ's discard topic, whole."""
    made = broker()
    handle = made.half(b"x", block=b"KEYS\x01k\x02")
    for number in range(15):
        made.scheduler.advance(40)
        [check] = made.transactions.fetch_checks(GROUP, 1)
        assert check.times == number + 1
        if number in (3, 9):
            made.close()
            made = broker(made.disk, made.clock)
    assert made.undecided == 1
    made.scheduler.advance(40)
    assert made.undecided == 0
    [discarded] = [at_offset(made.store, DISCARD_TOPIC, 0, 0)]
    assert (bytes(discarded.stored_body), discarded.properties["TRANSACTION_CHECK_TIMES"]) == (b"x", "15")
    assert discarded.properties["REAL_TOPIC"] == TOPIC
    assert at_offset(made.store, OP_TOPIC, 0, 0).properties["__PYDDMQ_DECISIONS"] == "d"
    assert made.commit(handle).end is End.DISCARDED
    found: list[End] = []
    made.transactions.resume(0, lambda outcome: found.append(outcome.end))
    made.transactions.resume(0, lambda outcome: found.append(outcome.end))
    made.scheduler.run_until_idle()
    assert sorted(found) == [End.OK, End.UNKNOWN_HANDLE]
    made.scheduler.advance(7)
    [check] = made.transactions.fetch_checks(GROUP, 1)
    assert check.times == 1
    assert made.commit(handle).end is End.OK
    assert made.visible() == [b"x"]


def test_half_without_pollers_waits_for_days_of_uptime() -> None:
    """No producer of the group: nothing counts; after seven days in which the broker ran it is discarded."""
    made = broker()
    made.half(b"x")
    made.scheduler.advance(6 * 86_400)
    made.close()
    made.clock.advance(400 * 86_400)
    made = broker(made.disk, made.clock)
    made.scheduler.advance(0.9 * 86_400)
    assert made.undecided == 1
    made.scheduler.advance(0.2 * 86_400)
    assert made.undecided == 0
    assert at_offset(made.store, DISCARD_TOPIC, 0, 0).properties.get("TRANSACTION_CHECK_TIMES") is None


@pytest.mark.parametrize("age_seconds", [10.0, 100.0])
@pytest.mark.parametrize("at", [0.0, 0.1, 1.1, 12.7])
def test_moments_that_no_float_hits_are_passed_in_one_step(age_seconds: float, at: float) -> None:
    """A step that comes a rounding error early does not call itself again for ever."""
    made = broker(checks=CheckSettings(timeout_ms=1000, age_seconds_max=age_seconds))
    made.scheduler.advance(at)
    made.half(b"x")
    made.scheduler.advance(1.5 * age_seconds)
    assert made.undecided == 0
    assert made.metrics.value(counted.DISCARDED, "age") == 1


def test_immunity_puts_off_checks_and_late_decisions() -> None:
    """A half that asks for 60 s is not checked before, and its producer's own decision is too late after."""
    made = broker(checks=CheckSettings(interval_ms=1000))
    handle = made.half(b"x", immunity_seconds=60)
    made.scheduler.advance(59)
    assert made.transactions.fetch_checks(GROUP, 1) == []
    made.scheduler.advance(2)
    [check] = made.transactions.fetch_checks(GROUP, 1)
    assert made.commit(handle).end is End.TOO_LATE
    assert made.end(check.handle, State.COMMIT, from_check=True).end is End.OK


@pytest.mark.parametrize("state", [State.COMMIT, State.ROLLBACK])
def test_handle_of_a_resumed_half_is_answered_after_a_restart(state: State) -> None:
    """The op record of the first place says that it moved; where it was decided is found by its id."""
    made = broker(checks=CheckSettings(timeout_ms=1000, interval_ms=1000, checks_max=1))
    handle = made.half(b"x")
    made.scheduler.advance(1)
    made.transactions.fetch_checks(GROUP, 1)
    made.scheduler.advance(1)
    assert made.commit(handle).end is End.DISCARDED
    made.transactions.resume(0, lambda _: None)
    made.store.flush()
    made.scheduler.run_until_idle()
    made.end(handle, state)
    for _ in range(8):
        # What lies far below the lowest undecided half is not in the checkpoint.
        made.commit(made.half(b"y"))
    made.close()
    made = broker(made.disk, made.clock)
    assert made.end(handle, state) == EndOutcome(End.ALREADY_SAME, decided=state)


def test_commit_starts_a_relative_delay_and_keeps_a_moment() -> None:
    """A delay runs from the commit; a moment is what it was, and a commit after it delivers at once."""
    made = broker(segment_bytes=65536)
    start = made.clock.wall_ms()
    delayed = made.half(b"a", delay_ms=60_000)
    later = made.half(b"b", deliver_at_ms=start + 500_000)
    past = made.half(b"c", deliver_at_ms=start + 1000)
    made.scheduler.advance(100)
    for handle in (delayed, later, past):
        assert made.commit(handle).end is End.OK
    found = [at_offset(made.store, "rmq_sys_wheel_timer", 0, offset) for offset in range(2)]
    assert [message.properties["TIMER_DELIVER_MS"] for message in found] == [str(start + 160_000), str(start + 500_000)]
    assert [message.properties["REAL_TOPIC"] for message in found] == [TOPIC, TOPIC]
    assert made.visible() == [b"c"]
    assert made.commit(delayed).end is End.ALREADY_SAME


def test_retry_of_a_message_of_a_transaction_is_an_ordinary_one() -> None:
    """With reconsume times and a level it goes to the schedule topic: RocketMQ's rule."""
    made = broker()
    put = Put(made.store.topics[TOPIC], 0, b"x", b"", reconsume_times=1)
    assert made.transactions.half(put, group=GROUP, delay_level=3).topic.name == "SCHEDULE_TOPIC_XXXX"
    assert made.transactions.half(put, group=GROUP).topic.name == HALF_TOPIC


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"group": ""}, "is not a valid name"),
        ({"group": "a\x01b"}, "is not a valid name"),
        ({"delay_level": -1}, "negative"),
        ({"delay_ms": 1 << 50}, "timerMaxDelaySec"),
        ({"block": b"k\x01" + b"v" * 32_500 + b"\x02"}, "the limit is"),
    ],
)
def test_half_that_could_never_be_committed_is_refused(options: dict[str, Any], why: str) -> None:
    """Before anything is stored."""
    made = broker(segment_bytes=65536)
    with pytest.raises(MessageRefused, match=why):
        made.half(b"x", **options)
    assert made.undecided == 0
