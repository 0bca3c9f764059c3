"""Rate-limited log: one line per kind, group and minute, with the count and the first example (D25)."""

from __future__ import annotations

import gc
import weakref

from structlog.testing import capture_logs

from broker.runtime.rate_limited_log import RateLimitedLog
from pyddmq.testing import ManualClock


def test_first_notice_is_written_at_once() -> None:
    """Somebody who watches the log sees the first occurrence when it happens."""
    limited_log = RateLimitedLog(ManualClock())
    with capture_logs() as lines:
        limited_log.note("body_unreadable", "billing", topic="orders", offset=7)
    assert lines == [
        {
            "event": "body_unreadable",
            "log_level": "warning",
            "count": 1,
            "group": "billing",
            "topic": "orders",
            "offset": 7,
        }
    ]


def test_flood_of_events_becomes_one_line_per_minute() -> None:
    """Ten thousand occurrences in a minute cost one more line, with their count and the first example."""
    clock = ManualClock()
    limited_log = RateLimitedLog(clock)
    with capture_logs() as lines:
        for offset in range(10_000):
            limited_log.note("result_stale", "billing", offset=offset)
            limited_log.flush()
        assert len(lines) == 1
        clock.advance(60)
        limited_log.flush()
        limited_log.flush()
    assert [line["count"] for line in lines] == [1, 9_999]
    assert lines[1]["offset"] == 1


def test_kinds_and_groups_do_not_hide_each_other() -> None:
    """Another kind, or the same kind in another group, gets a line of its own."""
    limited_log = RateLimitedLog(ManualClock())
    with capture_logs() as lines:
        limited_log.note("result_stale", "a")
        limited_log.note("result_stale", "b")
        limited_log.note("tag_skipped", "a")
    assert [(line["event"], line["group"]) for line in lines] == [
        ("result_stale", "a"),
        ("result_stale", "b"),
        ("tag_skipped", "a"),
    ]


def test_quiet_minute_forgets_the_kind() -> None:
    """After a minute without an occurrence the next one is written at once again."""
    clock = ManualClock()
    limited_log = RateLimitedLog(clock)
    with capture_logs() as lines:
        limited_log.note("record_damaged", count=3, physical=4096)
        clock.advance(61)
        limited_log.flush()
        limited_log.note("record_damaged", physical=8192)
    assert [(line["count"], line["physical"]) for line in lines] == [(3, 4096), (1, 8192)]


def test_stop_writes_what_gathered() -> None:
    """A node that stops inside the minute does not swallow the count."""
    limited_log = RateLimitedLog(ManualClock())
    with capture_logs() as lines:
        limited_log.note("result_stale", "a")
        limited_log.note("result_stale", "a", count=4)
        limited_log.flush(everything=True)
    assert [line["count"] for line in lines] == [1, 4]


def test_fault_has_its_traceback_once_and_keeps_nothing_alive() -> None:
    """Its lines are errors; those that wait for their minute say where it was and let go what its frames held."""

    class Held:
        """What a call works on."""

    def fail() -> weakref.ref[Held]:
        held = Held()
        try:
            raise ValueError("broken")
        except ValueError as error:
            limited_log.fault("call_failed", error, kind="pull", method="pull")
        return weakref.ref(held)

    clock = ManualClock()
    limited_log = RateLimitedLog(clock)
    with capture_logs() as lines:
        fail()
        kept = fail()
        fail()
        gc.collect()
        assert kept() is None
        clock.advance(60)
        limited_log.flush()
    first, rest = lines
    assert (first["log_level"], first["count"], str(first["exc_info"])) == ("error", 1, "broken")
    assert (rest["log_level"], rest["count"], rest["fault"]) == ("error", 2, "ValueError: broken")
    assert "test_rate_limited_log.py:" in rest["at"]
