"""Ack logs of a node in virtual time: each message that ends once, with its moments, whatever becomes of it."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest
from structlog.testing import capture_logs

from broker.format.properties import encode_properties
from broker.log.put import Put
from lag.acks.acks import Outcome, is_sampled
from lag.acks.log import FOLDER, read_acks
from lag.blocks import BlockGap
from proxy.recording.ack_logs import DROPPED, WRITTEN
from tests.insides import opened_of
from tests.simulation.test_queue_samples import now_ms, ward_of
from tests.simulation.ward import Ward
from tests.simulation.world import DATA

PLACE = f"{DATA}/{FOLDER}/by-key"


class Ended(NamedTuple):
    """What the log says of a message."""

    topic: str
    offset: int
    stored_ms: int
    handed_ms: int | None
    ended_ms: int
    deliveries: int
    outcome: Outcome


def logging_ward(share: Any = "all", **by_key: Any) -> Ward:
    """Return a node with one queue, whose group has an ack log."""

    def on(wanted: dict[str, Any]) -> None:
        wanted["groups"][0]["ackLog"] = share

    return ward_of(on, **by_key)


def ended(ward: Ward) -> list[Ended]:
    """All that is in the log now; nothing may be damaged."""
    found = []
    for each in read_acks(ward.disk, PLACE):
        assert not isinstance(each, BlockGap), each
        batch = each[1]
        for offset, stored, handed, end, deliveries, outcome in zip(*batch[2:], strict=True):
            found.append(Ended(batch.topic, offset, stored, handed, end, deliveries, Outcome(outcome)))
    return found


def later(ward: Ward) -> list[Ended]:
    """All of it, once what waits is written."""
    ward.run(2)
    return ended(ward)


def test_group_without_one_writes_nothing() -> None:
    """And nobody is told: a branch is all that it costs."""
    ward = ward_of()
    ward.send("orders", "k")
    ward.finish()
    ward.run(2)
    assert ward.node.in_force.groups["by-key"].node.endings.listeners == ()
    assert not ward.disk.list(PLACE)


def test_consumed_message_has_its_moments() -> None:
    """When it was stored, went out, and was acknowledged."""
    ward = logging_ward(timeout=300_000)
    moments = []
    ward.send("orders", "k")
    moments.append(now_ms(ward))
    ward.run(3)
    [place] = ward.pull()
    moments.append(now_ms(ward))
    ward.run(5)
    ward.answer(place, success=True)
    moments.append(now_ms(ward))
    [found] = later(ward)
    assert (found.topic, found.offset, found.deliveries, found.outcome) == ("orders", 0, 1, Outcome.SUCCEEDED)
    assert found.handed_ms is not None
    for at, moment in zip((found.stored_ms, found.handed_ms, found.ended_ms), moments, strict=True):
        assert abs(at - moment) <= 5
    assert ward.node.runtime.metrics.value(WRITTEN, "by-key") == 1


def test_message_that_failed_first_keeps_its_first_hand_out() -> None:
    """Two deliveries, one end; the wait between them is in the residence."""
    ward = logging_ward(retryIntervals=[10_000, -1])
    ward.send("orders", "k")
    ward.fail(1)
    first = now_ms(ward)
    ward.run(11)
    ward.finish()
    [found] = later(ward)
    assert (found.deliveries, found.outcome) == (2, Outcome.SUCCEEDED)
    assert found.handed_ms is not None
    assert abs(found.handed_ms - first) <= 10
    assert found.ended_ms - found.handed_ms >= 10_000


def test_dead_letter_and_sent_back_are_ends_of_their_own() -> None:
    """What comes again from the retry topic ends there, too."""
    ward = logging_ward(retryIntervals=[])
    ward.send("orders", "k")
    ward.fail(1)
    [found] = later(ward)
    assert found.outcome is Outcome.DEAD_LETTERED
    ward = logging_ward(retryIntervals=[1_000], retryTopic=True, orderKey=None)
    ward.send("orders", "k")
    ward.fail(1)
    ward.run(2)
    ward.finish()
    assert [(each.topic, each.outcome) for each in later(ward)] == [
        ("orders", Outcome.SENT_BACK),
        ("%RETRY%by-key", Outcome.SUCCEEDED),
    ]


def test_what_the_group_does_not_want_is_recorded_as_refused() -> None:
    """By its tags, whose codes may be the same, and by the stress flag: never handed out, passed over at once."""
    ward = logging_ward(tags=["AaAa"], orderKey=None)
    sent = [b"blue", b"BBBB", b"AaAa"]
    store = opened_of(ward.node).store
    for tags in sent:
        block = encode_properties({"TAGS": tags.decode()})
        store.append([Put(store.topics["orders"], 0, b"{}", block, tags)], born_ms=1, born_host=b"\x7f\0\0\1\0\0\0\0")
    flagged = encode_properties({"TAGS": "AaAa", "isPressureTraffic": "true"})
    store.append([Put(store.topics["orders"], 0, b"{}", flagged, b"AaAa")], born_ms=1, born_host=b"\x7f\0\0\1\0\0\0\0")
    ward.finish()
    found = sorted(later(ward), key=lambda each: each.offset)
    refused, succeeded = Outcome.REFUSED, Outcome.SUCCEEDED
    assert [(each.offset, each.outcome) for each in found] == [
        (0, refused), (1, refused), (2, succeeded), (3, refused)
    ]  # fmt: skip
    for each in found:
        assert (each.handed_ms is None, each.deliveries == 0) == (each.offset != 2, each.offset != 2)
        assert each.stored_ms <= each.ended_ms <= now_ms(ward)


@pytest.mark.parametrize("kill", [True, False])
def test_kill_costs_a_second_at_most_and_a_stop_nothing(kill: bool) -> None:
    """Each start goes on in a file of its own."""
    ward = logging_ward()
    for _ in range(3):
        ward.send("orders", "k")
        ward.finish()
    ward.run(2)
    ward.send("orders", "k")
    for place in ward.pull():
        ward.answer(place, success=True)
    ward.restart(kill=kill)
    assert [each.offset for each in ended(ward)] == list(range(3 if kill else 4))
    ward.send("orders", "k")
    ward.finish()
    found = later(ward)
    assert {each.offset for each in found} >= {0, 1, 2, 4}
    assert len(found) == len({each.offset for each in found})
    assert len(ward.disk.list(PLACE)) == 2


def test_share_takes_the_same_messages_everywhere() -> None:
    """By the hash of their offset."""
    ward = logging_ward(0.25)
    for _ in range(40):
        ward.send("orders", "k")
    ward.finish()
    assert [each.offset for each in later(ward)] == [offset for offset in range(40) if is_sampled(offset, 4)]


def test_reload_switches_it_on_and_off() -> None:
    """What waits is written when it ends."""
    ward = ward_of()
    for share in ("all", "off", "all"):
        ward.edit_group(lambda groups, share=share: groups[0].update(ackLog=share))  # type: ignore[misc]
        ward.send("orders", "k")
        ward.finish()
    assert [each.offset for each in later(ward)] == [0, 2]


def test_full_disk_costs_records_and_nothing_else() -> None:
    """They are counted, and the log says it once a minute; with space again it goes on."""
    ward = logging_ward()
    before = ward.disk.capacity_bytes
    ward.disk.capacity_bytes = ward.disk.used_bytes() + 1_000_000
    with capture_logs() as logs:
        for _ in range(3):
            ward.send("orders", "k")
            ward.finish()
        ward.run(70)
    assert ward.node.runtime.metrics.value(DROPPED, "by-key") == 3
    assert {line["fault"] for line in logs if line["event"] == "ack_log_not_written"}
    ward.disk.capacity_bytes = before
    ward.send("orders", "k")
    ward.finish()
    assert [each.offset for each in later(ward)] == [3]
