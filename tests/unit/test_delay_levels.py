"""The list of delay levels, due times, and the ranges and caps of a level."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.feature import Given, unit_code
from broker.format.java import tags_code
from broker.queues.consume_queue import ConsumeQueue
from broker.scheduled.delay.level_queue import Aside, DelayLevel, Ranges, Waiting
from broker.scheduled.delay.levels import DelayLevels, due_ms
from broker.scheduled.delay.puts import delay_feature
from broker.testing import SimDisk

MINUTE_MS = 60_000


def test_standard_list_is_rocketmqs() -> None:
    """Eighteen levels, 1 s to 2 h; above the highest is the highest."""
    levels = DelayLevels()
    assert levels.delays_ms == (
        *(1000, 5000, 10_000, 30_000),
        *(minute * MINUTE_MS for minute in (*range(1, 11), 20, 30, 60, 120)),
    )
    assert levels.ms(99) == 120 * MINUTE_MS
    assert levels.ms(0) == 1000


@pytest.mark.parametrize("text", ["", "1", "1s,2s", "0s", "-1s", "1w", "1.5h", "1s " * 101])
def test_list_of_another_form_is_refused(text: str) -> None:
    """The sentence says which form is wanted."""
    with pytest.raises(ValueError, match="delay"):
        DelayLevels(text)


def test_due_time_is_the_records_own_or_the_lists() -> None:
    """A record that says how long it waits keeps that whatever the list is; RocketMQ's take the list."""
    levels = DelayLevels("3d")
    assert due_ms(b"DELAY\x012\x02", 5, levels) == 5 + 3 * 86_400_000
    assert due_ms(b"DELAY\x012\x02__PYDDMQ_DELAY_MS\x01-7\x02", 5, levels) == -2
    assert due_ms(b"DELAY\x01x\x02", 5, levels) == 1005
    assert due_ms(b"TAGS\x01a\x02", 5, levels) is None
    codes = Given([delay_feature("3d")]).unit_codes
    assert unit_code(b"SCHEDULE_TOPIC_XXXX", b"DELAY\x012\x02", 5, codes) == 5 + 3 * 86_400_000
    assert unit_code(b"SCHEDULE_TOPIC_XXXX", b"TAGS\x01a\x02", 5, codes) == tags_code(b"a")
    assert unit_code(b"other", b"TAGS\x01a\x02DELAY\x011\x02", 5, codes) == tags_code(b"a")


@given(st.lists(st.tuples(st.integers(0, 40), st.integers(1, 9)), max_size=30), st.integers(0, 50))
def test_ranges_are_a_set(added: list[tuple[int, int]], cut: int) -> None:
    """Against a plain set, cut at the end."""
    ranges, plain = Ranges(), set[int]()
    for start, count in added:
        ranges.add(start, start + count)
        plain.update(range(start, start + count))
        assert len(ranges) == len(plain)
        assert all((offset in ranges) == (offset in plain) for offset in range(60))
        assert all(ranges.after(each) == min(set(range(each, 61)) - plain) for each in range(60))
    end = ranges.cut(cut)
    while cut in plain:
        cut += 1
    assert end == cut
    assert all(start >= cut for start, _ in ranges.ranges)


@given(st.lists(st.integers(0, 1000), min_size=1, max_size=40))
def test_due_times_never_fall_and_are_those_of_what_came_later(dues: list[int]) -> None:
    """D35: each message is due at its own time, or at an earlier one of a message behind it."""
    queue = ConsumeQueue("t", 0, root="/r", disk=SimDisk(), file_units=1000)
    level = DelayLevel(1, 10_000, queue)
    for offset, due in enumerate(dues):
        queue.restore(offset, offset.to_bytes(8, "big") + (100).to_bytes(4, "big") + due.to_bytes(8, "big"))
        assert level.look()
    assert [each.due_ms for each in level.waiting(0)] == [min(dues[offset:]) for offset in range(len(dues))]


@given(st.lists(st.integers(0, 12), max_size=6), st.sets(st.integers(0, 12), min_size=1), st.sets(st.integers(0, 12)))
def test_settling_many_is_settling_each(before: list[int], offsets: set[int], aside: set[int]) -> None:
    """Position, what is settled above it and what is aside are the same, whatever was settled before."""
    found = []
    for many in (False, True):
        level = DelayLevel(1, 10_000, ConsumeQueue("t", 0, root="/r", disk=SimDisk(), file_units=1000))
        for offset in before:
            level.settle(offset)
        messages = [Waiting(1, offset, offset * 100, 100, 5) for offset in sorted(offsets)]
        level.aside = {offset: Aside(messages[0], "refused", 0) for offset in sorted(aside)}
        if many:
            level.settle_all(messages)
        else:
            for message in messages:
                level.settle(message.offset)
        found.append((level.position, level.next, level.settled.ranges, list(level.aside)))
    assert found[0] == found[1]
