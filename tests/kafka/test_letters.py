"""Dead letters of a group in a real Kafka: written by a node, redriven by one node, known to another."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest

from pyddmq import Consumer
from tests.acceptance.conftest import command
from tests.kafka.nodes import NodeProcess
from tests.kafka.topics import SECONDS, make_topic, send_plainly
from tests.patient import until

pytestmark = pytest.mark.long

TEXT = """
node: {{producerPort: 0, consumerPort: 0, adminPort: 0, data: {data}, brokerName: {node}}}
kafka: {{main: {{bootstrapServers: "{address}", membership: pulls, groupProtocol: classic}}}}
topics: {{{topic}: {{brokerCluster: main}}, {topic}-other: {{brokerCluster: main}}}}
groups: [{{group: g-{topic}, topics: [{{topic: {topic}, maxPullBatchSize: 16, retryIntervals: []}}]}}]
"""


def messages(node: NodeProcess, topic: str, **more: str) -> list[Any]:
    """What a topic has, by partition and offset."""
    query = "&".join(f"{name}={value}" for name, value in {"topic": topic, "limit": "100", **more}.items())
    found: list[Any] = json.loads(urlopen(f"http://{node.admin}/api/messages?{query}", timeout=SECONDS).read())[
        "messages"
    ]
    return found


def test_letters_are_redriven_once_by_any_node(topic: Callable[..., str], address: str, tmp_path: Path) -> None:
    """One by one, of a reason, and all; to their partitions, to another topic; a second node passes them over."""
    name = topic(2)
    group = f"g-{name}"
    make_topic(address, f"{name}-other", 1, {})
    make_topic(address, f"{group}.DLQ", 2, {})
    nodes = []
    try:
        for each in ("one", "two"):
            text = TEXT.format(data=tmp_path / each, node=each, address=address, topic=name)
            nodes.append(NodeProcess(tmp_path, each, text=text))
        sent = [{"key": b"k%d" % (n % 2), "value": b"body-%d" % n, "partition": n % 2} for n in range(8)]
        send_plainly(address, name, sent)
        failed = 0
        with Consumer(nodes[0].consumers, group) as consumer:
            while failed < 8:
                for message in consumer.pull(patience_ms=500):
                    consumer.fail(message, "declined" if message.body == b"body-7" else "broken")
                    failed += 1
            consumer.pull(patience_ms=500)
            until(lambda: len(messages(nodes[0], f"{group}.DLQ")) == 8, "the dead letters")
        admin = ("--admin", nodes[0].admin)
        [counted] = command("dlq", "stats", group, "--json", *admin).json_lines()
        assert (counted["deadLetters"], counted["redriven"]) == (8, 0)
        assert sum(each["count"] for each in counted["kinds"] if "declined" in each["reason"]) == 1

        def redrive(*arguments: str, by: NodeProcess) -> dict[str, Any]:
            [result] = command("dlq", "redrive", group, *arguments, "--json", "--admin", by.admin).json_lines()
            found: dict[str, Any] = result
            return found

        assert redrive("--all", by=nodes[0])["wouldRedrive"] == 8
        one = redrive("--reason", "declined", "--to", f"{name}-other", "--yes", by=nodes[0])
        assert (one["redriven"], [each["body"] for each in messages(nodes[0], f"{name}-other")]) == (1, ["body-7"])
        rest = redrive("--all", "--yes", by=nodes[1])
        assert (rest["redriven"], rest["already"]) == (7, 1)
        assert redrive("--all", "--yes", by=nodes[0])["already"] == 8
        for partition in (0, 1):
            bodies = [each["body"] for each in messages(nodes[0], name, queue=str(partition))]
            again = [each for each in bodies[:4] if each != "body-7"]
            assert bodies == [*(f"body-{n}" for n in range(8) if n % 2 == partition), *again]
        page = urlopen(f"http://{nodes[1].admin}/dead-letters?group={group}", timeout=SECONDS).read().decode()
        assert page.count('data-id="') == 8
    finally:
        for node in nodes:
            node.stop()


def test_tail_prints_what_is_written_after_it_began(topic: Callable[..., str], address: str, tmp_path: Path) -> None:
    """In both partitions, by a filter."""
    name = topic(2)
    send_plainly(address, name, [{"value": b"old"}])
    text = TEXT.format(data=tmp_path / "n", node="n", address=address, topic=name)
    node = NodeProcess(tmp_path, "n", text=text)
    try:
        url = f"http://{node.admin}/api/messages?topic={name}"
        cursor = json.loads(urlopen(f"{url}&cursor=end", timeout=SECONDS).read())["cursor"]
        send_plainly(address, name, [{"value": b"new-%d" % n, "partition": n % 2} for n in range(6)])
        found: list[str] = []

        def has_all() -> bool:
            nonlocal cursor
            answer = json.loads(urlopen(f"{url}&cursor={cursor}&text=new&limit=2", timeout=SECONDS).read())
            cursor = answer["cursor"]
            found.extend(each["body"] for each in answer["messages"])
            return len(found) >= 6

        until(has_all, "the new messages")
        assert sorted(found) == [f"new-{n}" for n in range(6)]
    finally:
        node.stop()


def test_pages_redrive_publish_and_show_what_comes(topic: Callable[..., str], address: str, tmp_path: Path) -> None:
    """In a browser: a selected letter, a message of the form, and one of another program in the tail."""
    pytest.importorskip("playwright")
    from playwright.sync_api import sync_playwright

    from tests.console.conftest import CHROMIUM

    name = topic(2)
    group = f"g-{name}"
    make_topic(address, f"{name}-other", 1, {})
    make_topic(address, f"{group}.DLQ", 1, {})
    facts = {"reason": b"broken", "topic": name.encode(), "partition": b"1", "offset": b"0", "attempts": b"1"}
    headers = [(f"pyddmq.{each}", value) for each, value in facts.items()]
    send_plainly(address, f"{group}.DLQ", [{"value": b"letter-%d" % n, "headers": headers} for n in range(3)])
    node = NodeProcess(tmp_path, "n", text=TEXT.format(data=tmp_path / "n", node="n", address=address, topic=name))
    try:
        with sync_playwright() as driver:
            browser = driver.chromium.launch(executable_path=str(CHROMIUM), args=["--no-sandbox"])
            page = browser.new_page()
            page.goto(f"http://{node.admin}/dead-letters?group={group}")
            page.locator("#letters tbody input").nth(1).check()
            page.get_by_role("button", name="Show the effect on 1 selected").click()
            page.get_by_text("1 would be redriven").wait_for()
            page.get_by_role("button", name="Redrive", exact=True).click()
            page.get_by_text("1 redriven, 0 already").wait_for()
            assert f"redriven to {name}, queue 1" in page.locator(".outcomes").inner_text()
            page.goto(f"http://{node.admin}/topic?topic={name}")
            page.get_by_text("letter-1").wait_for()
            send_plainly(address, name, [{"value": b"from elsewhere"}])
            page.get_by_text("from elsewhere").wait_for()
            page.locator("#publish [name=body]").fill("of the form")
            page.get_by_role("button", name="Publish").click()
            page.get_by_text("Published").wait_for()
            page.locator("#tail").get_by_text("of the form").wait_for()
            browser.close()
    finally:
        node.stop()
