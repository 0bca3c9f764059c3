"""What a person on call does, on the page alone; docs/console.md has the number of clicks of each task."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pyddmq import OutgoingMessage
from tests.console.scenes import Undecided
from tests.console.test_browser import Tab
from tests.integration.proxy.admin.test_admin_node import ServedNode
from tests.patient import Consumer, Producer, TransactionProducer, until

pytestmark = pytest.mark.long

ROOT = Path(__file__).resolve().parents[2]
YAML = """
node: {producerPort: 0, consumerPort: 0, adminPort: 0, drainSeconds: 1}
topics:
  orders: {queues: 1}
  payments: {queues: 1}
  notices: {queues: 1}
groups:
  - group: billing
    topics: [{topic: orders, orderKey: KEY, maxPullBatchSize: 32, retryIntervals: [], onExhausted: stopKey}]
  - group: settlement
    topics: [{topic: payments, maxPullBatchSize: 32, retryIntervals: []}]
"""
DECLINED, BROKEN = "card declined", "ledger is read-only"


class OnCall(Tab):
    """A person in front of the overview, whose clicks are counted.

    Attributes:
        clicks: How many there were.
    """

    clicks = 0

    def __enter__(self) -> OnCall:
        self.open("/")
        return self

    def click(self, name: str, *, role: str = "button", within: str = "body", exact: bool = True) -> None:
        """Click the first button or link of this name."""
        self.clicks += 1
        self.page.locator(within).get_by_role(role, name=name, exact=exact).first.click()

    def menu(self, name: str) -> None:
        """Open a page of the menu."""
        self.click(name, role="link", within=".bar nav")

    def confirm(self) -> str:
        """Press the button of the dialog that makes the change, and return what it reports."""
        self.clicks += 1
        self.page.locator("#ask-go").click()
        result = self.page.locator("#ask-result")
        result.locator("p").first.wait_for()
        return str(result.inner_text())

    def reads(self, text: str) -> None:
        """The page shows a text."""
        self.page.locator("main").get_by_text(text).first.wait_for()


@pytest.fixture(scope="module")
def documented() -> dict[str, int]:
    """Clicks by task, as docs/console.md has them."""
    text = (ROOT / "docs" / "console.md").read_text(encoding="utf-8")
    return {task: int(clicks) for task, clicks in re.findall(r"^\| ([^|]+) \| [^|]+ \| (\d+) \|$", text, re.MULTILINE)}


@pytest.fixture
def node(tmp_path: Path) -> Iterator[ServedNode]:
    """A node with a stuck key, dead letters of two reasons, a timer and an undecided half."""
    served = ServedNode(tmp_path, YAML)
    with Producer(served.ready["producer"]) as producer:
        producer.send_batch(
            [OutgoingMessage(topic="orders", body=b'{"customer": "c-%d"}' % n, key="account-7") for n in range(4)]
        )
        producer.send_batch([OutgoingMessage(topic="payments", body=b"%d" % n, key=f"p-{n}") for n in range(5)])
        producer.send("notices", b"later", key="reminder", delay_ms=3_600_000)
    with Consumer(served.ready["consumer"], "billing") as consumer:
        [first] = consumer.pull(patience_ms=10_000)
        consumer.fail(first, "account is locked")
    with Consumer(served.ready["consumer"], "settlement") as consumer:
        failed = 0
        while failed < 5:
            for message in consumer.pull(patience_ms=10_000):
                consumer.fail(message, DECLINED if failed < 2 else BROKEN)
                failed += 1
    with TransactionProducer(served.ready["producer"], "shop", Undecided()) as halves:
        halves.send_in_transaction(OutgoingMessage(topic="notices", body=b"half", key="half-1"))
    until(lambda: letters(served) == [2, 3], "the dead letters")
    until(lambda: [each["reason"] for each in stuck(served) if each["reason"]], "the stuck message")
    until(lambda: served.json("/api/timers")["pendingTotal"] == 1, "the timer")
    until(lambda: "is stuck" in served.request("/")[1] or "account-7" in served.request("/")[1], "the finding")
    yield served
    served.stop()


def letters(node: ServedNode, field: str = "count") -> list[int]:
    """Return a figure of dead letters of each reason of the group `settlement`, sorted."""
    found = node.json("/api/dead-letters?group=settlement&figures=true")
    return sorted(each[field] for each in found.get("kinds", ()))


def stuck(node: ServedNode) -> list[Any]:
    """Return the stuck messages."""
    found: list[Any] = node.json("/api/groups/stuck")["stuck"]
    return found


def committed(node: ServedNode) -> int:
    """Return where the group `billing` is."""
    return int(node.json("/api/offsets?group=billing")["offsets"][0]["committed"])


def test_why_a_group_is_stuck(browser: Any, node: ServedNode, documented: dict[str, int]) -> None:
    """The finding leads to the group, which names key, message and error."""
    with OnCall(browser, node) as person:
        person.click("Open billing", role="link")
        person.reads("account-7")
        person.reads("account is locked")
        assert person.clicks == documented["Find why a group is stuck"]


@pytest.mark.parametrize(("name", "expected"), [("Skip", 0), ("Dead-letter", 1)])
def test_stuck_message_is_ended(
    browser: Any, node: ServedNode, documented: dict[str, int], name: str, expected: int
) -> None:
    """By the button of the finding: its key continues; skipped it makes no dead letter."""
    with OnCall(browser, node) as person:
        person.click(name)
        person.confirm()
        person.page.locator("#ask-result .good").wait_for()
        assert person.clicks == documented["Skip or dead-letter it"]
    until(lambda: committed(node) == 1, "the next message")
    groups = {each["group"]: each["deadLetters"] for each in node.json("/api/dead-letters")["groups"]}
    assert groups.get("billing", 0) == expected


def test_letters_of_one_reason_are_redriven(browser: Any, node: ServedNode, documented: dict[str, int]) -> None:
    """Those of the other reason stay."""
    with OnCall(browser, node) as person:
        person.menu("Dead letters")
        person.click("settlement", role="link", within="main")
        person.click(DECLINED, role="link", within="main", exact=False)
        person.click("Show the effect")
        person.reads("2 would be redriven")
        person.click("Redrive")
        person.reads("2 redriven")
        assert person.clicks == documented["Redrive dead letters of one reason"]
    assert letters(node, "redriven") == [0, 2]


def test_effect_of_a_reset_is_shown_and_then_made(browser: Any, node: ServedNode, documented: dict[str, int]) -> None:
    """Numbers by queue first; nothing changes before the second press."""
    with OnCall(browser, node) as person:
        person.click("Open billing", role="link")
        person.click("Reset to a time")
        person.page.locator("#ask input[name=toTimeMs]").fill("2037-01-01T00:00:00")
        assert "Nothing is changed yet" in person.confirm()
        assert committed(node) == 0
        assert person.clicks == documented["See what a reset would do"]
        person.confirm()
        person.page.locator("#ask-result .good").wait_for()
        assert person.clicks == documented["Reset"]
    assert committed(node) == 4


def test_message_of_one_customer_is_found_by_a_text(browser: Any, node: ServedNode, documented: dict[str, int]) -> None:
    """In bodies of a topic; the message shows what each group does with it."""
    with OnCall(browser, node) as person:
        person.menu("Messages")
        person.page.locator("main input[name=topic]").fill("orders")
        person.page.locator("main input[name=text]").fill("c-2")
        person.click("Find")
        person.click("20", role="link", within="#found", exact=False)
        person.reads('"customer": "c-2"')
        assert person.clicks == documented["Find one customer's message"]


def test_test_message_is_published(browser: Any, node: ServedNode, documented: dict[str, int]) -> None:
    """The form says where it is."""
    with OnCall(browser, node) as person:
        person.menu("Topics")
        person.click("notices", role="link", within="main")
        person.page.locator("#publish [name=body]").fill("test")
        person.click("Publish")
        person.reads("Published")
        assert person.clicks == documented["Publish a test message"]
    assert node.json("/api/messages?topic=notices&body=none")["messages"]


def test_pending_timer_is_cancelled(browser: Any, node: ServedNode, documented: dict[str, int]) -> None:
    """It is gone from the list."""
    with OnCall(browser, node) as person:
        person.menu("Waiting")
        person.click("Cancel timer")
        person.confirm()
        assert person.clicks == documented["Cancel a timer"]
    assert node.json("/api/timers")["pendingTotal"] == 0


def test_undecided_half_is_committed(browser: Any, node: ServedNode, documented: dict[str, int]) -> None:
    """The topic has its message."""
    with OnCall(browser, node) as person:
        person.menu("Waiting")
        person.click("Transactions", role="link", within="main", exact=False)
        person.click("Commit")
        person.confirm()
        assert person.clicks == documented["Commit an undecided half"]
    until(lambda: node.json("/api/messages?topic=notices&body=none")["messages"], "the committed message")


def test_group_is_paused_and_resumed(browser: Any, node: ServedNode, documented: dict[str, int]) -> None:
    """From its own page."""

    def paused() -> object:
        groups = {each["group"]: each for each in node.json("/api/groups")["groups"]}
        return groups["billing"]["topics"][0]["pausedSinceMs"]

    with OnCall(browser, node) as person:
        person.click("Open billing", role="link")
        person.click("Pause")
        person.confirm()
        assert paused() is not None
        person.click("Close")
        person.click("Resume")
        person.confirm()
        assert person.clicks == documented["Pause and resume a group"]
    assert paused() is None
