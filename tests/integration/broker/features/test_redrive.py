"""Redriving dead letters over a store: once, wherever it was cut short, with a clear answer for each that cannot go."""

from __future__ import annotations

import errno
from typing import Any

import pytest

from broker.errors import StoreFailed
from broker.format.message_type import MessageType
from broker.log.put import Put
from broker.query import NotFound, QueryRefused, at_offset
from broker.retry.dead_letter import dead_letter
from broker.retry.letters import DeadLetterFilter
from broker.retry.metrics import REDRIVE_REFUSED
from broker.runtime.rate_limited_log import RateLimitedLog
from broker.runtime.steps import run_now
from broker.scheduled.delay.delays import Delays
from broker.scheduled.timer.timers import Timers
from broker.store import Store
from proxy.operate.changes.dead_letters import _saved
from proxy.operate.lookups.dead_letters import LetterPage, figures, group_views
from pyddmq.testing import ManualClock, ManualScheduler, SimDisk
from tests.integration.redrive_tools import Failed, dead_lettered, opened, redrive, redrives
from tests.integration.store_tools import HOST, ROOT


def test_redriven_message_is_as_it_was_sent() -> None:
    """Topic, queue, key, tags, properties, body, flag and UNIQ_KEY; no failure counted, nothing left of its death."""
    disk = SimDisk()
    store = opened(disk)
    letter = dead_lettered(store, b"x", queue_id=1, key="k", tags="T", properties={"color": "blue"})
    first = at_offset(store, "t", 1, 0)
    answer = redrive(store, redrives(store, disk))

    assert (answer["redriven"], answer["already"], answer["refused"], answer["cursor"]) == (1, 0, 0, None)
    again = at_offset(store, "t", 1, 1)
    assert answer["results"][0]["target"] == {"topic": "t", "queue": 1, "offset": 1, "id": again.id}
    assert (again.properties, again.body(), again.flag) == (first.properties, b"x", first.flag)
    assert (again.reconsume_times, letter.reconsume_times) == (0, 3)
    assert again.prepared_offset == letter.physical
    assert (again.born_ms, again.born_host) == (first.born_ms, first.born_host)


def test_producers_flag_goes_all_the_way() -> None:
    """From the message to its dead letter and to the redriven message."""
    disk = SimDisk()
    store = opened(disk)
    store.append([Put(store.topics["t"], 0, b"x", b"", flag=77)], born_ms=1, born_host=HOST)
    store.flush()
    first = at_offset(store, "t", 0, 0)
    made, born_ms, host = dead_letter(store, "g", Failed(first, 1), "why", store.read(first.physical, first.size))
    store.append([made], born_ms=born_ms, born_host=host)
    store.flush()
    redrive(store, redrives(store, disk))
    assert [at_offset(store, topic, 0, offset).flag for topic, offset in (("%DLQ%g", 0), ("t", 1))] == [77, 77]


def test_dry_run_changes_nothing() -> None:
    """It says what would go where."""
    disk = SimDisk()
    store = opened(disk)
    dead_lettered(store, b"x")
    end = store.end
    answer = redrive(store, redrives(store, disk), dry=True)
    assert (answer["wouldRedrive"], answer["redriven"], store.end) == (1, 0, end)
    assert answer["results"][0]["target"] == {"topic": "t", "queue": 0}


@pytest.mark.parametrize("lost", [False, True])
def test_second_redrive_recognises_the_first(lost: bool) -> None:
    """Also after a restart, and without its checkpoint; `again` sends it once more."""
    disk, clock = SimDisk(), ManualClock()
    store = opened(disk, clock)
    dead_lettered(store, b"x")
    first = redrive(store, redrives(store, disk))["results"][0]["target"]
    store.close()
    if lost:
        disk.remove(f"{ROOT}/pyddmq/redrives.json")
    store = opened(disk, clock)
    known = redrives(store, disk)
    answer = redrive(store, known)
    assert (answer["redriven"], answer["already"]) == (0, 1)
    before = answer["results"][0]["redriven"]
    assert (before["id"], before["topic"], before["offset"]) == (first["id"], "t", 1)
    assert redrive(store, known, again=True)["redriven"] == 1
    assert store.topics["t"].queues[0].max_offset == 3
    assert redrive(store, known)["results"][0]["redriven"]["offset"] == 2


TYPED = [
    (MessageType.FIFO, {}, None),
    (MessageType.FIFO, {"to": "typed"}, "no key"),
    (MessageType.FIFO, {"to": "typed", "key": "k"}, None),
    (MessageType.NORMAL, {"to": "typed"}, None),
    (MessageType.DELAY, {}, "accepts only delayed messages"),
    (MessageType.DELAY, {"delay_level": 1}, None),
    (MessageType.DELAY, {"delay_ms": 1000}, None),
    (MessageType.DELAY, {"to": "typed", "delay_ms": 1000}, "accepts only delayed messages"),
    (MessageType.TRANSACTION, {}, "only messages of transactions"),
    (MessageType.TRANSACTION, {"to": "typed", "key": "k"}, "only messages of transactions"),
]


@pytest.mark.parametrize(("kind", "message", "why"), TYPED)
def test_dead_letter_of_another_kind_is_refused(kind: MessageType, message: dict[str, Any], why: str | None) -> None:
    """By the type of the topic that it is to go to; it stays, is counted, and goes where it fits."""
    disk, clock = SimDisk(), ManualClock()
    store = opened(disk, clock)
    to = message.get("to")
    store.create_topic("typed", 1)
    waits = {name: message[name] for name in ("delay_level", "delay_ms") if name in message}
    dead_letter_delivered(store, clock, disk, key=message.get("key", ""), **waits)
    store.topic_changes.set_types({to or "t": kind})
    known = redrives(store, disk)
    dry = redrive(store, known, to=to, dry=True)
    answer = redrive(store, known, to=to)
    assert (dry["refused"], answer["refused"]) == ((0, 0) if why is None else (1, 1))
    if why is not None:
        [result] = answer["results"]
        assert (result["kind"], why in result["why"]) == ("message_type", True), result["why"]
        assert store.metrics.value(REDRIVE_REFUSED, "g", "message_type") == 1
        store.topic_changes.set_types({to or "t": MessageType.MIXED})
        assert redrive(store, known, to=to)["redriven"] == 1
        return
    # A dead letter of what was redriven before goes again, too.
    assert answer["redriven"] == 1
    if to is None:
        letter = at_offset(store, "t", 0, 1)
        made, born_ms, host = dead_letter(
            store, "g", Failed(letter, 1), "why", store.read(letter.physical, letter.size)
        )
        store.append([made], born_ms=born_ms, born_host=host)
        store.flush()
        assert redrive(store, known)["redriven"] == 1


def dead_letter_delivered(store: Store, clock: ManualClock, disk: SimDisk, **options: Any) -> None:
    """Publish a message to queue 0 of `t`, have it delivered however it waits, and make its dead letter."""
    scheduler = ManualScheduler(clock)
    parts: dict[str, Any] = {
        "disk": disk,
        "clock": clock,
        "scheduler": scheduler,
        "metrics": store.metrics,
        "limited_log": RateLimitedLog(clock),
    }
    delays = run_now(Delays.opening(store, **parts))
    timers = run_now(Timers.opening(store, **parts))
    delays.start()
    timers.start()
    store.put("t", b"x", queue_id=0, **options)
    scheduler.advance(5)
    delays.stop()
    timers.stop()
    first = at_offset(store, "t", 0, 0)
    made, born_ms, host = dead_letter(store, "g", Failed(first, 3), "why", store.read(first.physical, first.size))
    store.append([made], born_ms=born_ms, born_host=host)
    store.flush()


def test_each_that_cannot_go_says_why_and_stays() -> None:
    """No such topic, none known, the broker's own, too large, damaged: the others go."""
    disk, clock = SimDisk(), ManualClock()
    store = opened(disk, clock)
    store.create_topic("gone", 1)
    dead_lettered(store, b"x" * 200)
    dead_lettered(store, b"fine")
    dead = store.topics["%DLQ%g"]
    blocks = (b"RETRY_TOPIC\x01gone\x02", b"", b"RETRY_TOPIC\x01%DLQ%h\x02")
    for block in blocks:
        store.append([Put(dead, 0, b"x", block)], born_ms=1, born_host=HOST)
    store.flush()
    store.topic_changes.delete("gone")
    damaged = dead_lettered(store, b"damaged")
    dead_lettered(store, b"behind")
    store.close()
    path = next(path for path in disk.list(f"{ROOT}/commitlog"))
    file = disk.open(f"{ROOT}/commitlog/{path}")
    file.write(damaged.physical + 100, [b"\xff"])
    store = opened(disk, clock, message_bytes_max=100)
    answer = redrive(store, redrives(store, disk))

    assert [(each["offset"], each["outcome"], each.get("kind")) for each in answer["results"]] == [
        (0, "refused", "unstorable"),
        (1, "redriven", None),
        (2, "refused", "no_topic"),
        (3, "refused", "origin_unknown"),
        (4, "refused", "system_topic"),
        (5, "refused", "unreadable"),
        (6, "redriven", None),
    ]
    assert answer["results"][0]["why"] == "the body has 200 bytes; the limit is 100; raise maxMessageBytes"
    assert answer["refused"] == 5
    for kind in ("unstorable", "no_topic", "origin_unknown", "system_topic", "unreadable"):
        assert store.metrics.value("pyddmq_dead_letters_not_redriven_total", "g", kind) == 1
    assert store.metrics.value("pyddmq_dead_letters_redriven_total", "g") == 2
    # Once the cause is gone they go.
    answer = redrive(store, redrives(store, disk), to="t", wanted={"topic": "gone"})
    assert answer["redriven"] == 1


def test_rocketmqs_dead_letters_go_home() -> None:
    """Its record names the topic alone, and still has what delayed it: the key's queue, and no delay any more."""
    disk = SimDisk()
    store = opened(disk)
    dead = store.create_topic("%DLQ%g", 1, system=True)
    block = (
        b"DELAY\x0118\x02REAL_TOPIC\x01%RETRY%g\x02REAL_QID\x010\x02RETRY_TOPIC\x01t\x02ORIGIN_MESSAGE_ID\x01A1\x02"
        b"KEYS\x01k\x02UNIQ_KEY\x01ABC\x02TAGS\x01T\x02WAIT\x01false\x02"
    )
    store.append([Put(dead, 0, b"x", block, b"T", b"ABC", reconsume_times=17)], born_ms=1, born_host=HOST)
    store.flush()
    answer = redrive(store, redrives(store, disk))
    [result] = answer["results"]
    assert (result["topic"], result["attempts"], result["originQueue"]) == ("t", 17, None)
    assert result["reason"].startswith("unknown")
    made = at_offset(store, "t", store.queue_for(store.topics["t"], "k"), 0)
    assert made.properties == {"KEYS": "k", "UNIQ_KEY": "ABC", "TAGS": "T", "WAIT": "false"}
    assert made.reconsume_times == 0


def test_filters_choose() -> None:
    """By id of either kind, topic, part of the reason, key, and when it died."""
    disk, clock = SimDisk(), ManualClock(1_000_000)
    store = opened(disk, clock)
    store.create_topic("u", 1)
    letters = []
    for number in range(4):
        clock.advance(1)
        letters.append(
            dead_lettered(store, b"%d" % number, key=f"k{number % 2}", reason="Out of luck" if number else "late")
        )
    known = redrives(store, disk)

    def chosen(**wanted: Any) -> list[int]:
        answer = redrive(store, known, dry=True, wanted=wanted)
        return [each["offset"] for each in answer["results"]]

    assert chosen(id=letters[2].id) == chosen(id=letters[2].unique_key) == [2]
    assert chosen(topic="t") == chosen() == [0, 1, 2, 3]
    assert chosen(topic="u") == []
    assert chosen(reason="of LUCK") == [1, 2, 3]
    assert chosen(key="k1") == [1, 3]
    assert chosen(from_ms=letters[1].store_ms, until_ms=letters[3].store_ms) == [1, 2]
    assert [(each.reason, each.count) for each in run_now(figures(store, known, "g", now_ms=1)).kinds] == [
        ("Out of luck", 3),
        ("late", 1),
    ]
    [group] = group_views(store)
    assert (group.group, group.dead_letters, group.first_ms) == ("g", 4, letters[0].store_ms)
    with pytest.raises(NotFound, match="never had a dead letter"):
        LetterPage(store, "h", DeadLetterFilter(), cursor=None, limit=1)
    with pytest.raises(QueryRefused, match="cursor"):
        LetterPage(store, "g", DeadLetterFilter(), cursor="x", limit=1)


def test_pages_go_on_where_the_last_one_ended() -> None:
    """Every dead letter is in exactly one of them."""
    disk = SimDisk()
    store = opened(disk)
    for number in range(10):
        dead_lettered(store, b"%d" % number)
    found, cursor = [], None
    while True:
        page = LetterPage(store, "g", DeadLetterFilter(), cursor=cursor, limit=3)
        found += [letter.offset for letter in page.found() if letter is not None]
        cursor = page.cursor
        if cursor is None:
            break
    assert found == list(range(10))


@pytest.mark.parametrize(
    ("reason", "shared"),
    [
        ("no answer from 127.0.0.1:{} within 5000 ms", "no answer from 127.0.0.1 within 5000 ms"),
        ("failed by [2001:12:3::1]:{}: database 10.0.0.1:5432", "failed by [2001:12:3::1]: database 10.0.0.1:5432"),
        ("failed 3 times: failed by 10.0.0.2:{}: broken", "failed 3 times: failed by 10.0.0.2: broken"),
        ("too old; before: failed by 10.0.0.2:{}", "too old; before: failed by 10.0.0.2"),
    ],
)
def test_reasons_of_one_client_are_counted_together_whatever_its_port(reason: str, shared: str) -> None:
    """A filter by the shared reason selects them all, one by the whole reason selects its own."""
    disk = SimDisk()
    store = opened(disk)
    for port in (4001, 4002):
        dead_lettered(store, b"x", reason=reason.format(port))
    known = redrives(store, disk)
    kinds = run_now(figures(store, known, "g", now_ms=1)).kinds
    assert [(each.reason, each.count) for each in kinds] == [(shared, 2)]
    for part, count in ((shared, 2), (reason.format(4001), 1)):
        assert len(redrive(store, known, dry=True, wanted={"reason": part})["results"]) == count


@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC])
def test_checkpoint_of_a_log_that_could_not_be_made_durable_stops_the_store(error: int) -> None:
    """Also where the disk is full: a second sync would succeed without what this one lost."""
    disk = SimDisk()
    store = opened(disk, flush="async")
    letters = redrives(store, disk)
    store.put("t", b"x")
    disk.fail("sync", error=error, path_part="/commitlog/")
    with pytest.raises(StoreFailed):
        run_now(_saved(store, letters, RateLimitedLog(ManualClock())))
