"""Every page and button of the console in a real browser, against a real node; `make console` runs it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from proxy.admin.console.menu import PAGES
from pyddmq import OutgoingMessage
from tests.integration.proxy.admin.test_admin_node import ServedNode
from tests.patient import Consumer, Producer

pytestmark = pytest.mark.long

WIDTHS = (1280, 390)


@pytest.fixture
def node(tmp_path: Path) -> Iterator[ServedNode]:
    """A node with a stuck key: its first message has failed, three more wait behind it."""
    served = ServedNode(tmp_path)
    with Producer(served.ready["producer"]) as producer, Consumer(served.ready["consumer"], "billing") as consumer:
        producer.send_batch([OutgoingMessage(topic="orders", body=b"%d" % n, key="<b>k</b>") for n in range(4)])
        [first] = consumer.pull(patience_ms=10_000)
        consumer.fail(first)
    assert any(node_has_stuck(served) for _ in range(500)), "the failure is not shown"
    yield served
    served.stop()


def node_has_stuck(node: ServedNode) -> bool:
    """Whether the node shows the failed message with its error."""
    return any(each["reason"] for each in node.json("/api/groups/stuck")["stuck"])


class Tab:
    """A tab whose faults are collected.

    Args:
        browser: The browser.
        node: The node.
        width: Of the window.
        options: Of the browser's context.
    """

    def __init__(self, browser: Any, node: ServedNode, *, width: int = 1280, **options: Any) -> None:
        self.faults: list[str] = []
        self._base = f"http://{node.ready['admin']}"
        self._context = browser.new_context(viewport={"width": width, "height": 900}, **options)
        self.page = self._context.new_page()
        self.page.on("pageerror", lambda error: self.faults.append(str(error)))
        self.page.on("console", lambda line: self.faults.append(line.text) if line.type == "error" else None)

    def __enter__(self) -> Tab:
        return self

    def __exit__(self, *_: object) -> None:
        self._context.close()

    def open(self, path: str) -> Any:
        """Go to a page and return it."""
        self.page.goto(self._base + path)
        return self.page

    def change(self, name: str, *, fill: dict[str, str] | None = None, dry: bool = False) -> str:
        """Press a button, confirm, and return what the dialog reports."""
        page = self.page
        page.get_by_role("button", name=name, exact=True).first.click()
        for field, value in (fill or {}).items():
            page.locator(f"#ask input[name={field}]").fill(value)
        result = page.locator("#ask-result")
        if dry:
            page.locator("#ask-go").click()
            result.get_by_text("Nothing is changed yet").wait_for()
        page.locator("#ask-go").click()
        result.locator(".good, .wrong").wait_for()
        text = str(result.inner_text())
        page.get_by_role("button", name="Close").click()
        return text


def paths() -> list[str]:
    """Return an address of each page."""
    named = {"/group": "/group?group=billing", "/topic": "/topic?topic=orders"}
    return [named.get(each.path, each.path) for each in PAGES]


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_pages_fit_and_refresh_without_a_fault(browser: Any, node: ServedNode, width: int, scheme: str) -> None:
    """No page scrolls sideways, no script is refused by the policy, and each live page gets its fragment again."""
    live = {each.path for each in PAGES if each.live}
    with Tab(browser, node, width=width, color_scheme=scheme) as tab:
        for path in paths():
            page = tab.open(path)
            if path.partition("?")[0] in live:
                with page.expect_response(lambda answer: "again=1" in answer.url, timeout=15_000) as answer:
                    pass
                assert answer.value.status in (200, 304)
                assert page.locator("#live").inner_text() == "live"
            assert page.evaluate("document.documentElement.scrollWidth") <= width, path
            assert page.locator("main h1").count() == 1
    assert tab.faults == []


def test_page_of_a_node_that_stands_still_is_not_live(browser: Any, node: ServedNode) -> None:
    """Its connections are open, and nothing is answered; the next answer is live again."""
    with Tab(browser, node) as tab:
        page = tab.open("/groups")
        held: list[Any] = []
        page.route("**again=1**", lambda route: held.append(route))  # noqa: PLW0108 - the driver marks it.
        page.locator("#live", has_text="no answer").wait_for(timeout=15_000)
        assert len(held) == 1
        held[0].continue_()
        page.locator("#live", has_text="live").wait_for()
    assert tab.faults == []


def test_page_is_loaded_again_when_the_node_takes_no_changes_any_more(browser: Any, node: ServedNode) -> None:
    """What is around a fragment is of the node as it was when the page was opened."""
    with Tab(browser, node) as tab:
        page = tab.open("/groups")
        page.evaluate("window.kept = true")
        with page.expect_response(lambda answer: "again=1" in answer.url, timeout=15_000):
            pass
        assert page.evaluate("window.kept")
        node.config.write_text(node.config.read_text() + "\nadmin: {readOnly: true}\n")
        assert node.request("/api/reload", "POST")[0] == 200
        page.get_by_text("read-only").wait_for()
    assert tab.faults == []


def test_pages_can_be_read_without_scripts(browser: Any, node: ServedNode) -> None:
    """Figures, stuck messages with key and error, links and filters."""
    with Tab(browser, node, java_script_enabled=False) as tab:
        for path in paths():
            assert tab.open(path).locator("main h1").count() == 1
        page = tab.open("/group?group=billing&span=1h")
        assert page.get_by_text("<b>k</b>").count() == 1
        assert page.locator("[data-change]").count() > 3
        assert not any(each.is_visible() for each in page.locator("[data-change]").all()), "they would do nothing"
        for command in ("groups pause billing", "groups skip billing", "offsets reset billing --topic orders --latest"):
            assert page.locator("noscript .command", has_text=f"pyddmq {command}").first.is_visible()
        assert "failed by" in page.locator("main").inner_text()
        page = tab.open("/groups")
        page.locator("form.filter input").fill("nothing")
        page.locator("form.filter button").click()
        assert "No group has this name" in page.locator("main").inner_text()


def test_commands_of_buttons_are_only_shown_without_scripts(browser: Any, node: ServedNode) -> None:
    """Before a refresh of the page and after it."""
    with Tab(browser, node) as tab:
        page = tab.open("/group?group=billing")
        for _ in range(2):
            assert page.get_by_role("button", name="Pause", exact=True).first.is_visible()
            assert "pyddmq groups pause billing" not in page.locator("main").inner_text()
            with page.expect_response(lambda answer: "again=1" in answer.url and answer.status == 200, timeout=15_000):
                pass
    assert tab.faults == []


def test_charts_are_drawn_and_keep_their_place_over_a_refresh(browser: Any, node: ServedNode) -> None:
    """UPlot draws into a place that a refresh does not reach."""
    with Tab(browser, node) as tab:
        page = tab.open("/group?group=billing")
        drawn = "document.querySelectorAll('rate-chart')[1].shadowRoot.querySelectorAll('canvas').length"
        page.wait_for_function(f"{drawn} === 1")
        page.evaluate("window.kept = document.querySelectorAll('rate-chart')[1].plot")
        with page.expect_response(lambda answer: "again=1" in answer.url and answer.status == 200, timeout=15_000):
            pass
        assert page.evaluate("window.kept === document.querySelectorAll('rate-chart')[1].plot")
    assert tab.faults == []


def test_each_button_of_a_group_does_what_it_says(browser: Any, node: ServedNode) -> None:
    """Pause and resume, the stuck message retried, dead-lettered and skipped, resets after their dry run."""
    with Tab(browser, node) as tab:
        tab.open("/group?group=billing")
        assert tab.change("Pause") == "Done.\n\npaused topics: orders"
        assert node.json("/api/groups")["groups"][0]["topics"][0]["pausedSinceMs"] is not None
        tab.open("/group?group=billing")
        assert tab.change("Resume") == "Done."
        assert node.json("/api/groups")["groups"][0]["topics"][0]["pausedSinceMs"] is None
        tab.open("/group?group=billing")
        assert tab.change("Retry")
        tab.open("/group?group=billing")
        assert tab.change("Dead-letter") == "It is now a dead letter."
        tab.open("/group?group=billing")
        assert "Done." in tab.change("Reset to an offset", fill={"toOffset": "0"}, dry=True)
        assert node.json("/api/offsets?group=billing")["offsets"][0]["committed"] == 0
        tab.open("/group?group=billing")
        assert "Done." in tab.change("Reset to the end", dry=True)
        assert node.json("/api/offsets?group=billing")["offsets"][0]["lag"] == 0
        tab.open("/group?group=billing")
        assert "Done." in tab.change("Reset to a time", fill={"toTimeMs": "2020-01-01T00:00:00"}, dry=True)
        assert node.json("/api/offsets?group=billing")["offsets"][0]["committed"] == 0
    assert tab.faults == []


def test_stuck_message_is_skipped(browser: Any, node: ServedNode) -> None:
    """The message behind it is next; nothing becomes a dead letter."""
    with Tab(browser, node) as tab:
        tab.open("/group?group=billing")
        tab.change("Skip")
        assert node.json("/api/offsets?group=billing")["offsets"][0]["committed"] == 1


def test_configuration_is_reloaded_and_its_errors_are_shown(browser: Any, node: ServedNode) -> None:
    """The effect is shown first; a refused file is named with its problem, and the one before stays in force."""
    with Tab(browser, node) as tab:
        tab.open("/node")
        assert tab.change("Reload", dry=True) == "Done."
        before = node.config.read_text()
        node.config.write_text(before + "\nnonsense: 1\n")
        tab.open("/node")
        assert "nonsense" in tab.change("Reload")
        assert node.request("/api/reload", "POST")[0] == 409
        assert "nonsense" in tab.open("/node").locator(".errors").inner_text()


def test_keys_open_pages_and_the_filter(browser: Any, node: ServedNode) -> None:
    """A digit opens a page of the menu, a slash goes to the filter, Tab first offers to skip the menu."""
    with Tab(browser, node) as tab:
        page = tab.open("/")
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.className") == "jump"
        page.keyboard.press("2")
        page.wait_for_url("**/groups")
        page.keyboard.press("/")
        assert page.evaluate("document.activeElement.name") == "q"
