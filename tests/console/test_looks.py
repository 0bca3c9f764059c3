"""How pages look and are walked through: contrast in both schemes, long names, the order of keys."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from proxy.admin.console.menu import PAGES
from tests.console.scenes import EMPTY, EMPTY_PATHS, LONG, PATHS, SCHEMES, WIDTHS, lively
from tests.console.test_browser import Tab
from tests.integration.proxy.admin.test_admin_node import ServedNode
from tests.patient import until

pytestmark = pytest.mark.long

CONTRAST = """() => {
  const parts = (text) => (text.match(/[\\d.]+/g) ?? []).map(Number);
  const over = ([r, g, b, a = 1], below) => [r, g, b].map((each, at) => each * a + below[at] * (1 - a));
  const behind = (node) => {
    const layers = [];
    for (let at = node; at; at = at.parentElement) layers.unshift(parts(getComputedStyle(at).backgroundColor));
    return layers.reduce((below, layer) => over(layer, below), [255, 255, 255]);
  };
  const linear = (each) => each <= .04045 ? each / 12.92 : ((each + .055) / 1.055) ** 2.4;
  const light = ([r, g, b]) => .2126 * linear(r / 255) + .7152 * linear(g / 255) + .0722 * linear(b / 255);
  const found = [];
  const judge = (node, style, text) => {
    const back = behind(node), pair = [light(over(parts(style.color), back)), light(back)].sort((a, b) => b - a);
    const ratio = (pair[0] + .05) / (pair[1] + .05);
    const size = parseFloat(style.fontSize), large = size >= 24 || (size >= 18.66 && Number(style.fontWeight) >= 700);
    if (ratio < (large ? 3 : 4.5)) found.push(`${ratio.toFixed(2)} ${node.tagName}.${node.className} ${text}`);
  };
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  let count = 0;
  while (walker.nextNode()) {
    const node = walker.currentNode.parentElement, text = walker.currentNode.data.trim();
    if (!text || !node.checkVisibility() || node.closest(":disabled, script, style, svg")) continue;
    count += 1;
    judge(node, getComputedStyle(node), text);
  }
  for (const field of document.querySelectorAll("input[placeholder]:not([placeholder=''])")) {
    const color = getComputedStyle(field, "::placeholder").color;
    judge(field, { fontSize: "14px", fontWeight: "400", color }, field.placeholder);
  }
  return [count, found];
}"""
"""Returns how many texts are shown, and those whose contrast is below 4.5 (3 where they are large)."""


CLIPPED = """() => [...document.querySelectorAll("main *")]
  .filter((each) => each.getBoundingClientRect().right > innerWidth + 1)
  .filter((each) => !each.closest("pre, .scroll, rate-chart, svg"))
  .map((each) => each.outerHTML.slice(0, 80))"""
"""Elements of the page that reach out of the window."""
PRESSABLE = """[...document.querySelectorAll("a, button, input:not([type=hidden]), pre[tabindex]")]
  .filter((each) => each.checkVisibility() && !each.disabled)"""


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedNode]:
    """A node with life in it, and long names."""
    with lively(tmp_path_factory.mktemp("lively"), 4) as served:
        until(lambda: LONG in served.request("/")[1], "the finding of the long name")
        until(lambda: served.json("/api/dead-letters")["groups"], "dead letters")
        yield served


def test_scenes_have_every_page() -> None:
    """A new page gets its pictures."""
    assert {each.path for each in PAGES} <= {path.partition("?")[0] for path in PATHS.values()}


@pytest.mark.parametrize("scheme", SCHEMES)
def test_text_stands_out_and_nothing_scrolls_sideways(browser: Any, node: ServedNode, scheme: str) -> None:
    """On every page at both widths, with names that have no place to break."""
    for width in WIDTHS:
        with Tab(browser, node, width=width, color_scheme=scheme) as tab:
            for name, path in PATHS.items():
                page = tab.open(path)
                count, weak = page.evaluate(CONTRAST)
                assert count > 3, name
                assert weak == [], (name, width)
                assert page.evaluate("document.documentElement.scrollWidth") <= width, (name, width)
                assert page.evaluate(CLIPPED) == [], (name, width)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_dialog_stands_out(browser: Any, node: ServedNode, scheme: str) -> None:
    """With its effect, and a refusal."""
    with Tab(browser, node, color_scheme=scheme) as tab:
        page = tab.open("/group?group=billing")
        page.get_by_role("button", name="Reset to an offset").first.click()
        page.locator("#ask input[name=toOffset]").fill("0")
        page.locator("#ask-go").click()
        page.locator("#ask-result").get_by_text("Nothing is changed yet").wait_for()
        assert page.evaluate(CONTRAST)[1] == []


def test_keys_reach_everything_in_the_order_of_the_page(browser: Any, node: ServedNode) -> None:
    """Tab goes down the page and leaves nothing out that can be pressed; the dialog gives the focus back."""
    with Tab(browser, node) as tab:
        page = tab.open("/waiting?kind=transactions")
        count = page.evaluate(f"window.seen = []; window.can = {PRESSABLE}; can.length")
        for _ in range(count):
            page.keyboard.press("Tab")
            page.evaluate("seen.push(can.indexOf(document.activeElement))")
        assert page.evaluate("seen") == list(range(count))
        button = page.get_by_role("button", name="Commit").first
        button.focus()
        page.keyboard.press("Enter")
        page.locator("#ask[open]").wait_for()
        assert page.evaluate("document.activeElement.closest('dialog')?.id") == "ask"
        page.keyboard.press("Escape")
        assert button.evaluate("(each) => each === document.activeElement")


def test_empty_node_says_so_on_every_page(browser: Any, tmp_path: Path) -> None:
    """In a sentence that does not speak of a filter where none is set."""
    node = ServedNode(tmp_path, EMPTY)
    try:
        with Tab(browser, node, color_scheme="dark") as tab:
            for name, path in EMPTY_PATHS.items():
                page = tab.open(path)
                assert page.evaluate(CONTRAST)[1] == [], name
                for text in page.locator(".none").all_inner_texts():
                    assert not any(each in text for each in ("fits", "this name", "match")), (name, text)
    finally:
        node.stop()
