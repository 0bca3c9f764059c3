"""The list of delay levels, and due times by it."""

from __future__ import annotations

import pytest

from broker.feature import OpenedFeatures, unit_code
from broker.format.java import tags_code
from broker.scheduled.delay.levels import DelayLevels, due_ms
from broker.scheduled.delay.puts import delay_feature

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
    codes = OpenedFeatures([delay_feature("3d")]).unit_codes
    assert unit_code(b"SCHEDULE_TOPIC_XXXX", b"DELAY\x012\x02", 5, codes) == 5 + 3 * 86_400_000
    assert unit_code(b"SCHEDULE_TOPIC_XXXX", b"TAGS\x01a\x02", 5, codes) == tags_code(b"a")
    assert unit_code(b"other", b"TAGS\x01a\x02DELAY\x011\x02", 5, codes) == tags_code(b"a")
