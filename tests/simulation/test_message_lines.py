"""Lines of the log about messages: of each at debug, of each group once a minute; and limits that hold some back."""

from __future__ import annotations

from typing import Any

from structlog.testing import capture_logs

from tests.simulation.ward import Ward


def lines_of(logs: list[Any], event: str) -> list[Any]:
    """The lines of one event."""
    return [line for line in logs if line["event"] == event]


def test_each_message_has_a_line_at_debug_and_none_otherwise() -> None:
    """What became of it, how often it was handed out, and how long it took; begun and ended by a reload."""
    ward = Ward()
    with capture_logs() as logs:
        ward.send("orders", "k")
        ward.finish()
        assert not lines_of(logs, "message_ended")
        ward.reload(logLevel="debug")
        ward.send("orders", "k")
        ward.fail(1)
        ward.finish()
        [line] = [each for each in lines_of(logs, "message_ended") if each["group"] == "by-key"]
        assert (line["topic"], line["outcome"], line["deliveries"], line["attempts"]) == ("orders", "succeeded", 2, 1)
        assert line["total_ms"] > 0
        assert line["reason"].startswith("failed by ")
        ward.reload(logLevel="info")
        before = len(lines_of(logs, "message_ended"))
        ward.send("orders", "k")
        ward.finish()
        assert len(lines_of(logs, "message_ended")) == before


def test_each_group_has_a_line_for_a_minute_in_which_something_happened() -> None:
    """Counts of that minute alone; a minute in which nothing happened has none."""
    ward = Ward()
    with capture_logs() as logs:
        ward.send("orders", "k")
        ward.fail(2)
        ward.finish()
        ward.run(60)
        [line] = [each for each in lines_of(logs, "group_minute") if each["group"] == "by-key"]
        assert (line["topic"], line["delivered"], line["failed"], line["finished"]) == ("orders", 3, 2, 1)
        assert line["p99_ms"] > 0
        ward.run(120)
        assert len([each for each in lines_of(logs, "group_minute") if each["group"] == "by-key"]) == 1


def test_limit_that_holds_messages_back_shows_on_the_page_and_as_a_gauge() -> None:
    """And is gone when it holds nobody back."""

    def narrow(wanted: dict[str, Any]) -> None:
        wanted["groups"][0]["topics"][0]["concurrency"] = 1

    ward = Ward(narrow)
    ward.send("orders", "a")
    ward.send("orders", "b")
    [place] = ward.pull()
    [group] = [each for each in ward.view.groups(details_max=10) if each.group == "by-key"]
    [topic] = [each for each in group.topics if each.topic == "orders"]
    assert topic.throttled == ["concurrency 1"]
    page, limits = ward.page_and_throttled()
    assert "running, at concurrency 1" in page
    assert limits == [("by-key", "orders", "concurrency")]
    ward.answer(place, success=True)
    ward.finish()
    page, limits = ward.page_and_throttled()
    assert "at concurrency" not in page
    assert not limits
