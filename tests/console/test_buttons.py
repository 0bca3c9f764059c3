"""Buttons that the ten tasks do not press: what waits, a selection of dead letters, and the tail."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.console.test_browser import Tab
from tests.console.test_ten_tasks import DECLINED, letters, node
from tests.integration.proxy.admin.test_admin_node import ServedNode
from tests.patient import Producer, until

__all__ = ["node"]
pytestmark = pytest.mark.long


def notices(node: ServedNode) -> list[str]:
    """Bodies of the topic to which everything that waits goes."""
    found = node.json("/api/messages?topic=notices&body=cut")["messages"]
    return [each["body"] for each in found]


def test_timer_is_moved_and_then_delivered_now(browser: Any, node: ServedNode) -> None:
    """The dialog shows the command with the time that is filled in; the moved one has a new id."""
    with Tab(browser, node, timezone_id="UTC") as tab:
        page = tab.open("/waiting")
        wanted = (datetime.now(UTC) + timedelta(hours=2)).isoformat(timespec="seconds").removesuffix("+00:00")
        page.get_by_role("button", name="Move").click()
        page.locator("#ask input[name=deliverAtMs]").fill(wanted)
        assert f"--at {wanted}" in page.locator("#ask-command").inner_text()
        page.get_by_role("button", name="Close").click()
        tab.change("Move", fill={"deliverAtMs": wanted})
        until(lambda: wanted in tab.open("/waiting").locator("main").inner_text(), "the moved timer")
        tab.change("Deliver now")
        until(lambda: "later" in notices(node), "the message")
    assert tab.faults == []


def test_all_listed_timers_are_cancelled(browser: Any, node: ServedNode) -> None:
    """By the button beside the heading."""
    with Producer(node.ready["producer"]) as producer:
        producer.send("notices", b"too", key="another", delay_ms=3_600_000)
    until(lambda: node.json("/api/timers")["pendingTotal"] == 2, "the timers")
    with Tab(browser, node) as tab:
        tab.open("/waiting")
        tab.change("Cancel these 2 timers")
    assert node.json("/api/timers")["pendingTotal"] == 0


def test_undecided_half_is_rolled_back(browser: Any, node: ServedNode) -> None:
    """Nothing is delivered."""
    with Tab(browser, node) as tab:
        tab.open("/waiting?kind=transactions")
        tab.change("Rollback")
    assert node.json("/api/transactions")["undecidedTotal"] == 0
    assert notices(node) == []


def test_selected_letters_are_redriven_at_a_rate(browser: Any, node: ServedNode) -> None:
    """Two of five, to another topic; each outcome is shown, and a second redrive passes them over."""
    with Tab(browser, node) as tab:
        page = tab.open("/dead-letters?group=settlement")
        boxes = page.locator("#letters tbody input")
        assert boxes.count() == 5
        boxes.nth(0).check()
        boxes.nth(3).check()
        page.locator("#redrive [name=to]").fill("notices")
        page.locator("#redrive [name=rate]").fill("100")
        page.get_by_role("button", name="Show the effect on 2 selected").click()
        page.get_by_text("2 would be redriven").wait_for()
        assert notices(node) == []
        page.get_by_role("button", name="Redrive", exact=True).click()
        page.get_by_text("2 redriven").wait_for()
        assert page.locator(".outcomes li").count() == 2
        assert "to notices, queue 0" in page.locator(".outcomes").inner_text()
        page.get_by_role("button", name="Show the effect on 2 selected").click()
        page.get_by_text("0 would be redriven, 2 already redriven").wait_for()
        assert page.get_by_role("button", name="Redrive", exact=True).is_disabled()
        page = tab.open(f"/dead-letters?group=settlement&reason={DECLINED}")
        assert page.locator("#letters tbody input").count() == 2
    assert sorted(notices(node)) != []
    assert sum(letters(node, "redriven")) == 2
    assert tab.faults == []


def test_tail_shows_what_is_stored_meanwhile_and_can_rest(browser: Any, node: ServedNode) -> None:
    """The newest first, with a filter; while it rests nothing is shown."""
    with Tab(browser, node) as tab, Producer(node.ready["producer"]) as producer:
        page = tab.open("/topic?topic=notices&text=red")
        producer.send("notices", b"a red one")
        producer.send("notices", b"a blue one")
        producer.send("notices", b"another red one")
        page.get_by_text("another red one").wait_for()
        rows = page.locator("#tail tbody tr")
        assert [each.split("\t")[-1] for each in rows.all_inner_texts()] == ["another red one", "a red one"]
        page.locator("#tail").get_by_role("button", name="Pause").click()
        producer.send("notices", b"a third red one")
        with page.expect_response(lambda answer: "/api/messages" in answer.url, timeout=15_000):
            page.locator("#tail").get_by_role("button", name="Continue").click()
        page.get_by_text("a third red one").wait_for()
    assert tab.faults == []
