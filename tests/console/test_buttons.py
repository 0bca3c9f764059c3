"""Buttons that the ten tasks do not press: what waits, a selection of dead letters, and the tail."""

from __future__ import annotations

import json
import re
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.console.test_browser import Tab
from tests.console.test_ten_tasks import DECLINED, letters, node
from tests.integration.proxy.admin.test_admin_node import ServedNode
from tests.patient import Consumer, Producer, until

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


@pytest.mark.parametrize("button", ["Cancel timer", "Cancel these 2 timers", "Move"])
def test_change_that_comes_too_late_says_so(browser: Any, node: ServedNode, button: str) -> None:
    """Another operator has had the message delivered since the page was opened."""
    with Producer(node.ready["producer"]) as producer:
        producer.send("notices", b"too", key="another", delay_ms=7_200_000)
    until(lambda: node.json("/api/timers")["pendingTotal"] == 2, "the timers")
    with Tab(browser, node, timezone_id="UTC") as tab, Tab(browser, node) as other:
        tab.open("/waiting")
        other.open("/waiting")
        other.change("Deliver now")
        until(lambda: "later" in notices(node), "the message")
        said = tab.change(button, fill={"deliverAtMs": "2099-01-01T00:00:00"} if button == "Move" else None)
        assert "rescheduled to a time that has passed, and delivered" in said
        assert "Done" not in said
        assert said.startswith("Not changed: 1 of 2.") == ("2" in button)
        assert tab.page.locator("#ask-result .wrong").count() == 1
    assert node.json("/api/timers")["pendingTotal"] == (0 if "2" in button else 1)
    assert tab.faults == []


def later(page: Any, pattern: str) -> list[Any]:
    """Hold requests back; returns where they are gathered."""
    held: list[Any] = []
    page.route(pattern, lambda route: held.append(route))  # noqa: PLW0108 - the driver marks the function.
    return held


def test_answer_of_a_closed_dialog_is_not_that_of_the_next_one(browser: Any, node: ServedNode) -> None:
    """A slow node: what would be changed is shown of the very change that is confirmed."""
    with Tab(browser, node) as tab:
        page = tab.open("/group?group=billing")
        held = later(page, "**/api/offsets/reset")
        go, field = page.locator("#ask-go"), page.locator("#ask input[name=toOffset]")
        page.get_by_role("button", name="Reset to an offset").click()
        field.fill("0")
        go.click()
        page.get_by_role("button", name="Close").click()
        page.get_by_role("button", name="Reset to the end").click()
        with page.expect_response("**/api/offsets/reset"):
            held[0].continue_()
        assert go.inner_text() == "Show the effect"
        assert page.locator("#ask-result").inner_text() == ""
        go.click()
        held[1].continue_()
        page.get_by_text("Nothing is changed yet").wait_for()
        assert go.inner_text() == "Reset to the end"
    assert tab.faults == []


def test_change_is_made_once_however_often_enter_is_pressed(browser: Any, node: ServedNode) -> None:
    """Before the answer, while the fields rest, and after it."""
    with Tab(browser, node, timezone_id="UTC") as tab:
        page = tab.open("/waiting")
        held = later(page, "**/api/timers/reschedule")
        page.get_by_role("button", name="Move").click()
        field = page.locator("#ask input[name=deliverAtMs]")
        field.fill((datetime.now(UTC) + timedelta(hours=2)).isoformat(timespec="seconds").removesuffix("+00:00"))
        page.locator("#ask form").evaluate("form => { form.requestSubmit(); form.requestSubmit(); }")
        page.wait_for_timeout(200)
        assert page.locator("#ask-fields[inert]").count() == 1
        held[0].continue_()
        page.locator("#ask-result .good").wait_for()
        field.press("Enter")
        page.wait_for_timeout(200)
        assert len(held) == 1
    assert tab.faults == []


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


def test_tail_goes_on_behind_a_message_of_a_moment_beyond_the_calendar(browser: Any, node: ServedNode) -> None:
    """Producers of Kafka choose the timestamp, such as one in nanoseconds."""

    def beyond(route: Any) -> None:
        answer = route.fetch()
        text = re.sub(r'"storeMs":\d+', f'"storeMs":{time.time_ns()}', answer.text())
        route.fulfill(response=answer, body=text)

    with Tab(browser, node) as tab, Producer(node.ready["producer"]) as producer:
        page = tab.open("/topic?topic=notices")
        page.route("**/api/messages*", beyond)
        for body in ("an odd one", "one behind it"):
            producer.send("notices", body.encode())
            page.get_by_text(body).wait_for()
    assert tab.faults == []


def test_tail_goes_on_where_the_log_is_shorter_than_it_was(browser: Any, node: ServedNode) -> None:
    """The tab was open while the node lost the end of its log with the power."""

    def longer(route: Any) -> None:
        answer = route.fetch()
        route.fulfill(response=answer, body=re.sub(r'data-end="\d+"', 'data-end="900000000"', answer.text()))

    with Tab(browser, node) as tab, Producer(node.ready["producer"]) as producer:
        tab.page.route("**/topic?topic=notices", longer)
        with tab.page.expect_response("**/api/messages?*"):
            page = tab.open("/topic?topic=notices")
        producer.send("notices", b"behind the new end")
        page.get_by_text("behind the new end").wait_for(timeout=10_000)
    assert tab.faults == []


def test_long_words_of_others_do_not_widen_the_page(browser: Any, node: ServedNode) -> None:
    """A consumer gives a reason without a space."""
    with Producer(node.ready["producer"]) as producer, Consumer(node.ready["consumer"], "settlement") as consumer:
        producer.send("payments", b"x", key="p-9")
        [message] = consumer.pull(patience_ms=10_000)
        consumer.fail(message, "R" * 3_000)
    until(lambda: len(letters(node)) == 3, "the dead letter")
    for width in (1280, 390):
        with Tab(browser, node, width=width) as tab:
            page = tab.open("/dead-letters?group=settlement")
            assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_redrive_that_was_edited_while_its_effect_came_is_not_confirmed(browser: Any, node: ServedNode) -> None:
    """Its effect is that of what was filled in before, on a slow node."""
    with Tab(browser, node) as tab:
        page = tab.open("/dead-letters?group=settlement")
        held = later(page, "**/api/dead-letters/redrive")
        page.get_by_role("button", name="Show the effect").click()
        page.locator("#redrive [name=to]").fill("notices")
        held[0].continue_()
        page.get_by_text("5 would be redriven").wait_for()
        assert page.get_by_role("button", name="Redrive", exact=True).is_disabled()
        page.unroute("**/api/dead-letters/redrive")
        page.get_by_role("button", name="Show the effect").click()
        page.locator("#redrive button[value=go]:enabled").wait_for()
        assert "to notices" in page.locator(".outcomes").inner_text()
    assert tab.faults == []


@pytest.mark.parametrize("rate", ["0", "-3", "0.01"])
def test_redrive_with_a_rate_that_is_none_does_nothing(browser: Any, node: ServedNode, rate: str) -> None:
    """It would be one without a limit; the command has what is filled in."""
    with Tab(browser, node) as tab:
        page = tab.open("/dead-letters?group=settlement")
        page.locator("#redrive [name=to]").fill("notices")
        page.locator("#redrive [name=again]").check()
        page.locator("#redrive [name=rate]").fill(rate)
        command = f"pyddmq dlq redrive settlement --all --to notices --rate {rate} --again --yes"
        assert page.locator("#redrive .command").inner_text() == command
        page.get_by_role("button", name="Show the effect").click()
        assert page.locator("#redrive :invalid").count() == 1
        assert page.locator("#redrive [role=status]").inner_text() == ""
        page.locator("#redrive [name=rate]").fill("0.5")
        page.locator("#letters tbody input").nth(1).check()
        assert "settlement --id " in page.locator("#redrive .command").inner_text()
        page.get_by_role("button", name="Show the effect on 1 selected").click()
        page.get_by_text("1 would be redriven").wait_for()
    assert tab.faults == []


@pytest.mark.parametrize(
    ("properties", "problem"),
    [
        ("color=red\nnonsense", 'Property "nonsense" has no "="; write name=value.'),
        ("color=red\ncolor=blue", 'Property "color" is set twice.'),
        ("=red", "A property has a blank name."),
    ],
)
def test_message_with_bad_properties_is_not_published(
    browser: Any, node: ServedNode, properties: str, problem: str
) -> None:
    """The form says what is wrong, and keeps what was typed."""
    with Tab(browser, node) as tab:
        page = tab.open("/topic?topic=notices")
        page.locator("#publish [name=body]").fill("{}")
        page.locator("#publish [name=properties]").fill(properties)
        page.get_by_role("button", name="Publish").click()
        page.locator("#publish").get_by_text(problem).wait_for()
        assert page.locator("#publish [name=properties]").input_value() == properties
    assert notices(node) == []


def test_message_is_published_once_however_often_the_button_is_pressed(browser: Any, node: ServedNode) -> None:
    """While the node has not answered; and with the button again, once it has."""
    with Tab(browser, node) as tab:
        page = tab.open("/topic?topic=notices")
        held = later(page, "**/api/messages/publish")
        page.locator("#publish [name=body]").fill("{}")
        page.locator("#publish button").evaluate("button => { button.click(); button.click(); }")
        page.wait_for_timeout(200)
        assert len(held) == 1
        held[0].continue_()
        page.locator("#publish").get_by_text("Published").wait_for()
        page.get_by_role("button", name="Publish").click()
        page.wait_for_timeout(200)
        assert len(held) == 2
    assert tab.faults == []


def test_property_may_have_any_name(browser: Any, node: ServedNode) -> None:
    """Those of JavaScript's own, too."""
    with Tab(browser, node) as tab:
        page = tab.open("/topic?topic=notices")
        page.locator("#publish [name=body]").fill("{}")
        page.locator("#publish [name=properties]").fill("constructor=a\n__proto__=b")
        page.get_by_role("button", name="Publish").click()
        page.locator("#publish").get_by_text("Published").wait_for()
    properties = node.json("/api/messages?topic=notices")["messages"][-1]["properties"]
    assert (properties["constructor"], properties["__proto__"]) == ("a", "b")


def test_matching_letters_are_downloaded(browser: Any, node: ServedNode, tmp_path: Path) -> None:
    """Those of the filter, as lines of JSON, with their bodies on request; without JavaScript, too."""
    with Tab(browser, node, java_script_enabled=False) as tab:
        page = tab.open(f"/dead-letters?group=settlement&reason={DECLINED}")
        for name in ("Download", "Download with bodies"):
            with page.expect_download() as saved:
                page.get_by_role("link", name=name, exact=True).click()
            saved.value.save_as(tmp_path / name)
            found = [json.loads(line) for line in (tmp_path / name).read_text().splitlines()]
            assert [DECLINED in each["reason"] for each in found] == [True, True]
            assert ["message" in each for each in found] == ["bodies" in name] * 2


def test_filter_of_the_tail_says_where_stored_messages_are(browser: Any, node: ServedNode) -> None:
    """Without JavaScript the filter shows nothing by itself."""
    with Producer(node.ready["producer"]) as producer:
        producer.send("notices", b"a red one")
    with Tab(browser, node, java_script_enabled=False) as tab:
        page = tab.open("/topic?topic=notices&text=red")
        page.get_by_role("link", name="Search", exact=True).click()
        assert "a red one" in page.locator("main").inner_text()
