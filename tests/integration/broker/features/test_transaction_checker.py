"""Checks: when a half comes into line, whose it is then, and when it is given up."""

from __future__ import annotations

import contextlib
import errno
import zlib
from functools import partial
from random import Random

import pytest
from structlog.testing import capture_logs

from broker.errors import DiskFull
from broker.format.body import SYS_COMPRESSED
from broker.log.put import Put
from broker.runtime import rate_limited_log
from broker.transaction import metrics as counted
from broker.transaction.checker import RETRY_SECONDS, HalfCheck
from broker.transaction.names import State
from broker.transaction.outcomes import End, EndOutcome
from broker.transaction.settings import CheckSettings
from proxy.recording.scheduled_samples import half_sample
from tests.insides import most_kept
from tests.integration.store_tools import HOST
from tests.integration.transaction_tools import GROUP, TOPIC, Broker, broker


def fetched(made: Broker, group: str = GROUP, count_max: int = 100) -> list[bytes]:
    """Bodies of the checks that a producer gets now."""
    return [check.body for check in made.transactions.fetch_checks(group, count_max)]


def fill(made: Broker) -> None:
    """Leave no room in the log, neither in what is set aside for the broker's own records."""
    made.store.create_topic("%DLQ%filling", 1, system=True)
    made.disk.capacity_bytes = 0
    for topic in ("filling", "%DLQ%filling"):
        for size in (2_000, 200, 20, 1):
            with contextlib.suppress(DiskFull):
                while True:
                    made.store.append([Put(made.store.topics[topic], 0, bytes(size), b"")], born_ms=0, born_host=HOST)
                    made.store.flush()


def test_halves_come_into_line_in_the_order_of_their_arrival() -> None:
    """Each when it is old enough, and a fetch takes no more than it asks for, from the front."""
    made = broker(checks=CheckSettings(timeout_ms=1_000))
    for body in (b"1", b"2", b"3"):
        made.half(body)
        made.scheduler.advance(0.4)
    assert fetched(made) == [b"1"]
    made.scheduler.advance(1.0)
    assert fetched(made, count_max=1) == [b"2"]
    assert fetched(made) == [b"3"]


def test_queue_that_cannot_be_read_stops_the_store_and_a_restart_asks() -> None:
    """Checks do not end without a word."""
    made = broker()
    for number in range(20):
        made.half(b"%d" % number)
    made.close()
    made = made.again(started=False)
    made.disk.fail("read", path_part="RMQ_SYS_TRANS_HALF_TOPIC", error=errno.ENXIO)
    made.transactions.start()
    with contextlib.suppress(OSError):
        made.scheduler.run_until_idle()
    assert made.store.failed is not None
    made = made.again()
    made.scheduler.advance(10)
    assert fetched(made) == [b"%d" % number for number in range(20)]


def test_groups_have_lines_of_their_own() -> None:
    """Producers of one group never see another's, and who waits for one is not called for the other."""
    made = broker(checks=CheckSettings(timeout_ms=1_000))
    woken: list[str] = []
    for group in ("g", "h"):
        made.transactions.on_checks(group, partial(woken.append, group))
    made.half(b"of h", group="h")
    made.scheduler.advance(1.1)
    assert woken == ["h"]
    assert (fetched(made, "g"), fetched(made, "h")) == ([], [b"of h"])


def test_line_of_a_group_that_fetches_no_checks_stays_as_long_as_what_is_undecided() -> None:
    """Its producers decide later than the first check, and never ask for one: for years."""
    made = broker(checks=CheckSettings(timeout_ms=1_000))
    checks = made.transactions.halves.checks
    for _ in range(30):
        handles = [made.half(b"x") for _ in range(100)]
        made.scheduler.advance(1.1)
        assert len(checks.lines[GROUP]) == 100
        for handle in handles:
            assert made.commit(handle).end is End.OK
    assert most_kept(checks.lines[GROUP]) <= 200
    made.half(b"y")
    assert half_sample(made.transactions, made.clock.wall_ms()).overdue == 0
    made.scheduler.advance(1.1)
    assert half_sample(made.transactions, made.clock.wall_ms()).overdue == 1
    assert fetched(made) == [b"y"]
    assert GROUP not in checks.lines


def test_lines_keep_their_order_while_others_in_them_are_decided() -> None:
    """Whatever is decided, fetched or given back in between: each is fetched once, the longest due first."""
    made = broker(checks=CheckSettings(timeout_ms=1_000, interval_ms=1_000_000))
    random, waiting, got = Random(1), list[bytes](), list[bytes]()
    handles: dict[bytes, str] = {}
    for number in range(300):
        body = b"%d" % number
        handles[body] = made.half(body)
        made.scheduler.advance(1.1)
        waiting.append(body)
        if number % 3:
            body = random.choice(sorted({*waiting, *got}))
            made.roll_back(handles[body])
            waiting = [each for each in waiting if each != body]
        elif number % 7 == 0:
            count = random.randrange(4)
            found = fetched(made, count_max=count)
            assert found == waiting[:count]
            got += found
            waiting = waiting[count:]
    assert fetched(made, count_max=1000) == waiting


def test_half_that_is_being_decided_keeps_its_checks_where_the_disk_is_full() -> None:
    """The decision is refused after all, and its producer may be gone: another one is asked."""
    made = broker(checks=CheckSettings(timeout_ms=1_000, interval_ms=1_000, checks_max=1))
    handle = made.half(b"x")
    made.scheduler.advance(1.1)
    room = made.disk.capacity_bytes
    fill(made)
    answers: list[EndOutcome] = []

    def roll_back() -> None:
        made.transactions.end(handle, group=GROUP, state=State.ROLLBACK, done=answers.append)

    roll_back()
    assert fetched(made) == []
    made.scheduler.run_until_idle()
    assert [each.end for each in answers] == [End.DISK_FULL]
    # It is decided again in the very turn in which its checks are used up.
    made.scheduler.call_later(1.0, roll_back)
    assert fetched(made) == [b"x"]
    made.scheduler.advance(1.0)
    assert [each.end for each in answers] == [End.DISK_FULL] * 2
    made.disk.capacity_bytes = room
    made.scheduler.advance(2 * RETRY_SECONDS)
    assert (made.undecided, made.metrics.value(counted.DISCARDED, "checks")) == (0, 1)


def test_listener_that_was_undone_is_not_called() -> None:
    """Undone twice is as undone once, and the other listeners of the group stay."""
    made = broker(checks=CheckSettings(timeout_ms=1_000))
    woken: list[str] = []
    undo = made.transactions.on_checks(GROUP, lambda: woken.append("left"))
    made.transactions.on_checks(GROUP, lambda: woken.append("stays"))
    undo()
    undo()
    made.half(b"x")
    made.scheduler.advance(1.1)
    assert woken == ["stays"]


def test_shorter_timeout_counts_at_once() -> None:
    """Settings may be replaced at any time: what is old enough by the new ones comes into line now."""
    made = broker(checks=CheckSettings(timeout_ms=3_600_000))
    made.half(b"x")
    made.scheduler.advance(10)
    assert fetched(made) == []
    made.transactions.settings = CheckSettings(timeout_ms=5_000)
    made.scheduler.run_until_idle()
    assert fetched(made) == [b"x"]


@pytest.mark.parametrize(("before_ms", "after_ms", "expected"), [(3_600_000, 5_000, True), (5_000, 3_600_000, False)])
def test_another_timeout_counts_for_halves_of_an_earlier_start(
    before_ms: int, after_ms: int, *, expected: bool
) -> None:
    """Their time was computed at the start; it is computed anew, but for those that ask for a time of their own."""
    made = broker(checks=CheckSettings(timeout_ms=before_ms))
    made.half(b"x")
    made.half(b"own", block=b"CHECK_IMMUNITY_TIME_IN_SECONDS\x01900\x02")
    made = made.again(checks=CheckSettings(timeout_ms=before_ms))
    made.scheduler.advance(4)
    assert fetched(made) == []
    made.transactions.settings = CheckSettings(timeout_ms=after_ms)
    made.scheduler.advance(6)
    assert fetched(made) == ([b"x"] if expected else [])
    made.transactions.settings = CheckSettings(timeout_ms=before_ms)
    made.scheduler.run_until_idle()
    assert fetched(made) == ([] if expected else [b"x"])


def test_half_that_is_decided_before_its_check_is_not_asked_about() -> None:
    """Neither where it waits for its time nor where it stands in line already."""
    made = broker(checks=CheckSettings(timeout_ms=1_000))
    early = made.half(b"early")
    made.roll_back(early)
    in_line = made.half(b"in line")
    left = made.half(b"left")
    made.scheduler.advance(1.1)
    made.commit(in_line)
    checks = made.transactions.fetch_checks(GROUP, 10)
    assert [check.handle for check in checks] == [left]


def test_check_that_came_back_late_takes_nothing_from_the_next() -> None:
    """Only the check that is out counts as not made; one that is over by then is nobody's to give back."""
    made = broker(checks=CheckSettings(timeout_ms=1_000, interval_ms=2_000))
    made.half(b"x")
    made.scheduler.advance(1.1)
    [first] = made.transactions.fetch_checks(GROUP, 1)
    made.scheduler.advance(2.1)
    [second] = made.transactions.fetch_checks(GROUP, 1)
    assert (first.times, second.times) == (1, 2)
    made.transactions.give_back(first)
    assert made.transactions.fetch_checks(GROUP, 1) == []
    made.scheduler.advance(2.1)
    assert [check.times for check in made.transactions.fetch_checks(GROUP, 1)] == [3]


def test_given_back_check_calls_who_waits() -> None:
    """In a turn of its own, since whoever gives it back is in the midst of something."""
    made = broker(checks=CheckSettings(timeout_ms=1_000))
    made.half(b"x")
    made.scheduler.advance(1.1)
    [check] = made.transactions.fetch_checks(GROUP, 1)
    woken: list[bool] = []
    made.transactions.on_checks(GROUP, lambda: woken.append(True))
    made.transactions.give_back(check)
    assert woken == []
    made.scheduler.run_until_idle()
    assert woken == [True]
    assert [each.times for each in made.transactions.fetch_checks(GROUP, 1)] == [1]


def test_nothing_is_asked_before_the_start_and_after_the_stop() -> None:
    """A store that is being closed lets its halves be."""
    made = broker(checks=CheckSettings(timeout_ms=1_000))
    made.half(b"x")
    made.transactions.stop()
    made.scheduler.advance(100)
    assert fetched(made) == []


def test_checker_takes_no_step_while_nothing_is_undecided(monkeypatch: pytest.MonkeyPatch) -> None:
    """An idle node is not woken by transactions that nobody makes, nor by those that are decided."""
    made = broker(checks=CheckSettings(age_seconds_max=100))
    steps: list[int] = []
    monkeypatch.setattr(made.transactions.step_size, "end", steps.append)
    made.scheduler.advance(1_000)
    assert steps == []
    handle = made.half(b"x")
    made.scheduler.advance(3)
    assert steps
    made.commit(handle)
    made.scheduler.advance(2)
    steps.clear()
    made.scheduler.advance(1_000)
    assert steps == []


def test_discards_of_many_groups_hide_no_other_line_of_the_log(monkeypatch: pytest.MonkeyPatch) -> None:
    """Producers choose the names of their groups; of one kind of line there is one in a minute, whoever it is about."""
    monkeypatch.setattr(rate_limited_log, "_KINDS_MAX", 4)
    made = broker(checks=CheckSettings(timeout_ms=1_000, interval_ms=1_000, checks_max=1))
    groups = [f"g{number}" for number in range(8)]
    for group in groups:
        made.half(b"x", group=group)
    made.scheduler.advance(1.1)
    for group in groups:
        assert fetched(made, group) == [b"x"]
    with capture_logs() as lines:
        made.scheduler.advance(1.1)
        made.transactions.halves.limited_log.note("damaged_record")
    assert made.metrics.value(counted.DISCARDED, "checks") == 8
    assert [line["event"] for line in lines] == ["half_message_discarded", "damaged_record"]


def test_discard_that_finds_no_room_waits_and_the_half_stays_undecided() -> None:
    """Counted each time, tried again by itself, and a commit in the meantime is still possible."""
    made = broker(checks=CheckSettings(timeout_ms=1_000, interval_ms=1_000, checks_max=1), segment_bytes=4096)
    handle = made.half(b"x" * 1_500)
    made.scheduler.advance(1.1)
    assert len(fetched(made)) == 1
    fill(made)
    made.scheduler.advance(1.1)
    assert (made.undecided, made.metrics.value(counted.WAITS)) == (1, 1)
    made.scheduler.advance(RETRY_SECONDS + 0.1)
    assert (made.undecided, made.metrics.value(counted.WAITS)) == (1, 2)
    made.disk.capacity_bytes = None
    assert made.commit(handle).end is End.OK
    assert made.visible() == [b"x" * 1_500]
    made.scheduler.advance(RETRY_SECONDS + 0.1)
    assert made.metrics.value(counted.DISCARDED, "checks") == 0


@pytest.mark.parametrize("state", [State.COMMIT, State.ROLLBACK])
def test_half_that_is_being_discarded_takes_no_decision(state: State) -> None:
    """The discard's record is staged: who comes in that turn is told where the message is going."""
    made = broker(checks=CheckSettings(timeout_ms=1_000, interval_ms=1_000, checks_max=1))
    handle = made.half(b"x")
    made.scheduler.advance(1.1)
    assert len(fetched(made)) == 1
    made.transactions._checker._discard(0, "checks")
    assert 0 in made.transactions.halves.discarding
    assert made.end(handle, state).end is End.DISCARDED
    assert 0 not in made.transactions.halves.discarding
    assert (made.undecided, made.visible()) == (0, [])


def test_packed_body_comes_whole_and_a_damaged_one_as_it_is_stored() -> None:
    """The producer compares it with its own: what cannot be unpacked is still known by its id."""
    made = broker(checks=CheckSettings(timeout_ms=1_000))
    for body in (zlib.compress(b"long " * 50), b"no zlib"):
        put = made.transactions.half(
            Put(made.store.topics[TOPIC], 0, body, b"", sys_flag=SYS_COMPRESSED | 0x300), group=GROUP
        )
        made.store.append([put], born_ms=1, born_host=HOST)
    made.store.flush()
    made.scheduler.advance(1.1)
    checks: list[HalfCheck] = made.transactions.fetch_checks(GROUP, 10)
    assert [check.body for check in checks] == [b"long " * 50, b"no zlib"]
    assert [check.born_ms for check in checks] == [1, 1]
