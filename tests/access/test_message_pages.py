"""The console's pages about messages: what they show, to whom, and that what people sent stays text."""

from __future__ import annotations

import json
from collections.abc import Sequence
from html import unescape
from typing import Any
from urllib.parse import quote

import pytest
from msgspec.structs import replace

from broker.format.properties import encode_properties
from broker.log.put import Put
from broker.retry.redrive import Redrives
from broker.store import Store
from broker.views import DelayedMessage, QueueRange, TimerView, TransactionView
from proxy.admin.console.message import hex_dump
from proxy.admin.console.templating import environment
from proxy.admin.console.waiting import PartitionRow, WaitingPageView, WaitingRow, timer_buttons
from proxy.operate.changes.dead_letters import RedriveBody, dead_letter_changes
from proxy.operate.changes.publish import publish_changes
from proxy.operate.lookups import messages as lookup
from proxy.operate.lookups.dead_letters import LetterPage
from proxy.operate.views.topics import TopicView
from pyddmq.testing import ManualClock, SimDisk
from tests.access.admin_world import AdminWorld
from tests.admin_node import NOW_MS
from tests.integration.store_tools import HOST, open_store

NODE: Any = None
HOSTILE = "<script>alert(1)</script>\"><img src=x onerror=alert(2)>'"


def store_with(*bodies: bytes) -> Store:
    """Return a store with hostile keys, properties and tags, and these bodies, in one queue of `permits`."""
    store = open_store(SimDisk(), clock=ManualClock(NOW_MS - 1_000), segment_bytes=1 << 20)
    topic = store.create_topic("permits", 1)
    block = encode_properties({"KEYS": HOSTILE, "TAGS": HOSTILE, "UNIQ_KEY": "one", HOSTILE: HOSTILE})
    for body in bodies:
        store.append([Put(topic, 0, body, block, b"")], born_ms=NOW_MS, born_host=HOST)
        store.flush()
    return store


async def page(world: AdminWorld, path: str, by: str | None = "all") -> str:
    """Return a page that must be answered."""
    answer = await world.ask(path, by=by)
    assert answer.status == 200, (path, answer.text)
    return answer.text


@pytest.mark.parametrize(
    "path",
    [
        "/message?topic=permits",
        "/message?topic=permits&queue=0&offset=0",
        "/message?topic=permits&queue=0&offset=0&format=text",
        "/message?topic=permits&queue=0&offset=0&format=hex",
        "/message?id=one",
        "/message?topic=permits&text=script",
        "/message?topic={hostile}&key={hostile}&text={hostile}",
    ],
)
def test_what_people_sent_stays_text(path: str) -> None:
    """Bodies, keys, tags, names and values of properties, and what a form holds."""
    world = AdminWorld()
    world.node.messages = store_with(HOSTILE.encode(), json.dumps({"a": HOSTILE}).encode())

    async def scenario() -> None:
        text = await page(world, path.format(hostile="%3Cscript%3Ealert(1)%3C/script%3E%22%3E%3Cimg%20src=x%20onerror"))
        assert "<script>alert" not in text
        assert "<img" not in text
        assert "alert" in text

    world.run(scenario)


def test_body_is_shown_to_who_may_read_it() -> None:
    """A viewer sees the record and its properties; a search in bodies is refused."""
    world = AdminWorld()
    world.node.messages = store_with(b'{"secret": 1}')
    one = "/message?topic=permits&queue=0&offset=0"

    async def scenario() -> None:
        assert "secret" in await page(world, one, "narrow")
        for path in (one, "/message?topic=permits"):
            hidden = await page(world, path, "viewer")
            assert "secret" not in hidden
            assert "one" in hidden or "record" in hidden
        for path in ("/message?topic=permits&text=secret", "/api/messages?topic=permits&text=secret&body=none"):
            assert (await world.ask(path, by="viewer")).status == 403
        assert (await world.ask("/message?topic=other", by="narrow")).status == 403
        assert (await world.ask("/message", by="stranger")).status == 403
        assert (await world.ask("/message")).status == 401

    world.run(scenario)


def test_message_of_another_topic_is_not_found_by_its_id() -> None:
    """An id names a message of any topic; the page shows those that the viewer may see."""
    world = AdminWorld()
    store = world.node.messages = store_with(b"{}")
    other = store.create_topic("payroll", 1)
    block = encode_properties({"UNIQ_KEY": "two", "KEYS": "salary"})
    store.append([Put(other, 0, b"{}", block, b"")], born_ms=NOW_MS, born_host=HOST)
    store.flush()

    async def scenario() -> None:
        assert "salary" not in await page(world, "/message?id=two", "narrow")
        assert "salary" in await page(world, "/message?id=two", "viewer")

    world.run(scenario)


def test_bodies_of_a_node_with_a_token_stay_hidden() -> None:
    """A browser does not send the token of `adminTokenFile`."""
    world = AdminWorld(rules=None, token="key")
    world.node.messages = store_with(b'{"secret": 1}')

    async def scenario() -> None:
        assert "secret" not in await page(world, "/message?topic=permits&queue=0&offset=0", None)
        assert (await world.ask("/message?topic=permits&text=secret")).status == 403

    world.run(scenario)


def test_search_in_text_looks_through_a_bounded_part_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """The cursor continues behind what was looked through, and finds all that contain the text."""
    monkeypatch.setattr(lookup, "TEXT_BYTES", 1_000)
    monkeypatch.setattr(lookup, "PAGE_BYTES", 1_000)
    world = AdminWorld()
    world.node.messages = store_with(*(b'{"n": %d, "even": "%s"}' % (n, [b"yes", b"no"][n % 2]) for n in range(40)))

    async def scenario() -> None:
        found, path = 0, "/api/messages?topic=permits&text=yes"
        rounds, cursor = 0, ""
        while rounds == 0 or cursor:
            answer = json.loads(await page(world, path + (f"&cursor={cursor}" if cursor else "")))
            found += len(answer["messages"])
            cursor = answer["cursor"]
            rounds += 1
        assert (found, rounds > 3) == (20, True)
        assert "Search on" in await page(world, "/message?topic=permits&text=yes")
        few = json.loads(await page(world, path + "&limit=1"))
        assert len(few["messages"]) == 1
        again = json.loads(await page(world, f"{path}&limit=1&cursor={few['cursor']}"))
        assert again["messages"][0]["offset"] == 2

    world.run(scenario)


def test_search_that_begins_at_the_end_has_a_page() -> None:
    """The word of the live tail is a cursor of a page, too."""
    world = AdminWorld()
    world.node.messages = store_with(b"a")

    async def scenario() -> None:
        for path in ("/message?topic=permits&cursor=end", "/message?topic=permits&text=a&cursor=end"):
            assert "Next" in await page(world, path) or "Search on" in await page(world, path)

    world.run(scenario)
    assert world.node.limited_log.faults == 0


@pytest.mark.parametrize(
    ("body", "shown"),
    [
        ('{"a": 0.10, "b": 12345678901234567890}', '"a": 0.1,\n  "b": 12345678901234567890'),
        ('{"amount": 12345678.901234567890}', '"amount": 12345678.901234567890'),
        ('{"amount": 1e999}', '"amount": 1e999'),
        ('{"amount": 1e-99999999999999999999}', '"amount": 1e-99999999999999999999'),
        ('{"a": "\\ud83d"}', '"a": "\\ud83d"'),
        ('{"a": [{"state": "paid", "state": "open"}]}', '"state": "paid", "state": "open"'),
    ],
)
def test_body_is_not_shown_as_what_it_is_not(body: str, shown: str) -> None:
    """JSON with a number that has more digits than a float, or with a name twice, is shown as it is stored."""
    world = AdminWorld()
    world.node.messages = store_with(body.encode())

    async def scenario() -> None:
        assert shown in unescape(await page(world, "/message?topic=permits&queue=0&offset=0"))

    world.run(scenario)


def test_hex_shows_offset_bytes_and_characters() -> None:
    """Sixteen bytes a line; what is not printable ASCII is a dot."""
    assert hex_dump(b"abc\x00\xff").split() == ["000000", "61", "62", "63", "00", "ff", "abc.."]
    assert hex_dump(bytes(17)).splitlines()[1].startswith("000010  00 ")


def with_letters(world: AdminWorld, count: int = 3, actions: Sequence[str] = ()) -> None:
    """Give the node dead letters of group `billing`, with hostile reasons, keys and topics."""
    disk = SimDisk()
    store = open_store(disk, clock=ManualClock(NOW_MS - 1_000), segment_bytes=1 << 20)
    store.append([Put(store.create_topic("permits", 1), 0, b"{}", b"", b"")], born_ms=NOW_MS, born_host=HOST)
    topic = store.create_topic("%DLQ%billing", 1)
    reported = {"KEYS": HOSTILE, "DLQ_ORIGIN_TOPIC": HOSTILE, "DLQ_REASON": HOSTILE, "TAGS": HOSTILE}
    for number in range(count):
        block = encode_properties(reported | ({"DLQ_ACTION": actions[number]} if actions and actions[number] else {}))
        put = Put(topic, 0, HOSTILE.encode(), block, b"", prepared_offset=1)
        store.append([put], born_ms=NOW_MS, born_host=HOST)
    store.flush()
    world.node.messages, world.node.letters = store, (store, Redrives(store, disk=disk))


@pytest.mark.parametrize(
    "query", ["", "?group=billing", "?group=billing&reason={hostile}&topic={hostile}&key={hostile}"]
)
def test_dead_letters_stay_text(query: str) -> None:
    """Reasons, keys and topics of dead letters, and what the filter holds, in text, links and data for the script."""
    world = AdminWorld()
    with_letters(world)

    async def scenario() -> None:
        text = await page(world, "/dead-letters" + query.format(hostile=quote(HOSTILE, safe="")))
        assert "<script>alert" not in text
        assert "<img" not in text
        assert text.count("data-cursor") == (3 if query else 0)
        assert "pyddmq dlq redrive billing" in text or not query

    world.run(scenario)


def test_dead_letters_are_grouped_and_redriven_by_the_action_that_failed() -> None:
    """With their counts; the filter is part of the redrive and of its command, and selects no others."""
    world = AdminWorld(changes=tuple(dead_letter_changes(NODE)))
    actions = ["HttpPush", "HttpPush", "PullServer", ""]
    with_letters(world, 4, actions)
    assert world.node.letters is not None

    async def scenario() -> None:
        everything = await page(world, "/dead-letters?group=billing")
        assert "HttpPush: 2</a>" in everything
        assert "unknown: 1</span>" in everything
        filtered = await page(world, "/dead-letters?group=billing&action=HttpPush")
        assert filtered.count("data-cursor") == 2
        assert "&#34;action&#34;:&#34;HttpPush&#34;" in filtered
        assert "pyddmq dlq redrive billing --action HttpPush --yes" in filtered
        shown = await world.ask("/api/dead-letters?group=billing&action=PullServer", by="all")
        assert [each["action"] for each in json.loads(shown.text)["deadLetters"]] == ["PullServer"]
        figures = json.loads((await world.ask("/api/dead-letters?group=billing&figures=true", by="all")).text)
        assert figures["actions"] == {"HttpPush": 2, "PullServer": 1, "": 1}
        assert sorted((each["action"], each["count"]) for each in figures["kinds"]) == [
            ("", 1), ("HttpPush", 2), ("PullServer", 1)
        ]  # fmt: skip

    world.run(scenario)
    wanted = RedriveBody(group="billing", action="HttpPush").wanted
    chosen = LetterPage(world.node.letters[0], "billing", wanted, cursor=None, limit=9)
    assert [each.action for each in chosen.found() if each is not None] == ["HttpPush"] * 2


def test_dead_letters_are_shown_and_redriven_by_right() -> None:
    """A viewer sees them, who operates the group redrives them, bodies are offered to who may read them."""
    world = AdminWorld(changes=tuple(dead_letter_changes(NODE)))
    with_letters(world)
    one, redrive = "/dead-letters?group=billing", "/api/dead-letters/redrive"

    async def scenario() -> None:
        seen = await page(world, one, "viewer")
        assert 'id="redrive"' not in seen
        assert "with bodies" not in seen
        operated = await page(world, one, "narrow")
        assert 'id="redrive"' in operated
        assert "with bodies" not in operated
        assert "with bodies" in await page(world, one, "all")
        assert (await world.ask("/dead-letters?group=payroll", by="narrow")).status == 403
        assert (await world.ask("/dead-letters", by="stranger")).status == 403
        cookie = await world.sign_in("narrow")
        body = {"group": "billing", "dryRun": False}
        for headers in ({}, {"Origin": "http://evil.example"}, {**world.origin(), "Sec-Fetch-Site": "cross-site"}):
            assert (await world.ask(redrive, method="POST", cookie=cookie, headers=headers, json=body)).status == 403
        assert not world.done
        assert (await world.ask(redrive, method="POST", cookie=cookie, headers=world.origin(), json=body)).status == 200

    world.run(scenario)


def with_topic(world: AdminWorld, *names: str) -> None:
    """Give the node these topics, with a hostile message in each."""
    store = open_store(SimDisk(), clock=ManualClock(NOW_MS - 1_000), segment_bytes=1 << 20)
    block = encode_properties({"KEYS": HOSTILE, "TAGS": HOSTILE})
    for name in names:
        topic = store.create_topic(name, 1)
        store.append([Put(topic, 0, HOSTILE.encode(), block, b"")], born_ms=NOW_MS, born_host=HOST)
    store.flush()
    queues = [QueueRange(queue=0, min=0, max=1)]
    world.node.messages = store
    world.node.topic_list = [TopicView(topic=name, system=False, kind="user", queues=queues) for name in names]


def test_topic_page_shows_newest_messages_as_text_by_right() -> None:
    """Bodies to who may read them, the form to who may produce; a search that stays text."""
    world = AdminWorld(changes=tuple(publish_changes(NODE)))
    with_topic(world, "permits", "payroll")
    one = "/topic?topic=permits"

    async def scenario() -> None:
        for path in (one, f"{one}&text={quote(HOSTILE)}", "/topics", f"/topics?q={quote(HOSTILE)}"):
            text = await page(world, path)
            assert "<script>alert" not in text
            assert "<img" not in text
        assert "/topic?topic=payroll" in await page(world, "/topics", "all")
        assert "payroll" not in await page(world, "/topics", "narrow")
        seen = await page(world, one, "viewer")
        assert "alert(1)" in seen.partition("Body</th>")[2].partition('data-label="Body"')[0]
        assert 'data-label="Body" class="long mono"></td>' in seen
        assert 'id="publish"' not in seen
        assert 'id="publish"' in await page(world, one, "all")
        assert (await world.ask("/topic?topic=payroll", by="narrow")).status == 403
        assert (await world.ask("/topic?topic=none", by="viewer")).status == 404
        tail = "/api/messages?topic=permits&cursor=0&limit=100&body=cut&again=1"
        assert len(json.loads(await page(world, tail))["messages"]) == 1
        assert (await world.ask(tail, by="viewer")).status == 403

    world.run(scenario)


def test_first_of_many_groups_and_queues_are_shown() -> None:
    """With how many there are."""
    world = AdminWorld(rules=None)
    with_letters(world)
    store = world.node.letters[0] if world.node.letters else None
    assert store is not None
    for number in range(300):
        store.create_topic(f"%DLQ%g{number}", 1)
    store.create_topic("wide", 250)
    queues = [QueueRange(queue=number, min=0, max=0) for number in range(250)]
    world.node.topic_list = [TopicView(topic="wide", system=False, kind="user", queues=queues)]

    async def scenario() -> None:
        letters = await page(world, "/dead-letters", None)
        assert (letters.count("<tr>"), "200 of 301 groups" in letters) == (201, True)
        topic = await page(world, "/topic?topic=wide", None)
        assert (topic.count('data-label="First offset"'), "200 of 250" in topic) == (200, True)

    world.run(scenario)


def test_first_of_10_000_topics_are_shown_at_once() -> None:
    """A page has 100; the filter is applied on the server."""
    world = AdminWorld(rules=None)
    with_topic(world, "permits")
    [kind] = world.node.topic_list
    world.node.topic_list = [replace(kind, topic=f"topic-{number}") for number in range(10_000)]

    async def scenario() -> None:
        assert (await page(world, "/topics", None)).count("<tr>") == 101
        assert (await page(world, "/topics?q=topic-9999", None)).count("<tr>") == 2

    world.run(scenario)


@pytest.mark.parametrize("kind", ["timers", "delays", "transactions"])
def test_what_waits_stays_text(kind: str) -> None:
    """Topics, keys, ids, groups and remarks, in text, links and the data of buttons."""
    reported: dict[str, Any] = {"topic": HOSTILE, "queue": 0, "id": HOSTILE, "key": HOSTILE, "stored_ms": NOW_MS}
    waits = {**reported, "due_ms": NOW_MS, "refused_because": HOSTILE}
    timer = TimerView(**waits, delay_id=None, rolls=0, loop=None, physical=0)
    rows = {
        "timers": WaitingRow(timer=timer, buttons=timer_buttons(timer, NOW_MS)),
        "delays": WaitingRow(delayed=DelayedMessage(**waits, level=1, offset=0)),
        "transactions": WaitingRow(
            half=TransactionView(
                **reported,
                state="undecided",
                handle=HOSTILE,
                offset=0,
                group=HOSTILE,
                checks=1,
                check_out=True,
                remark=HOSTILE,
                born_ms=NOW_MS,
                bytes=1,
                physical=0,
            )
        ),
    }
    owned = PartitionRow(
        cluster=HOSTILE,
        partition=1,
        node=HOSTILE,
        state="serving",
        pending=7_000,
        undecided=1,
        late_ms=0,
        takeover_ms=9,
    )
    view = WaitingPageView(
        now_ms=NOW_MS, kind=kind, given={"topic": HOSTILE, "id": HOSTILE}, rows=[rows[kind]], in_kafka=[owned]
    )
    text = environment().get_template("waiting.html").render(view=view)
    assert "<script>alert" not in text
    assert "<img" not in text
    assert text.count("alert(1)") >= 7
    assert "7,000" in text


def test_what_waits_is_shown_to_who_may_view_everything() -> None:
    """Its counts are of all topics; what is not valid is a sentence."""
    world = AdminWorld()
    world.node.messages = store_with(b"{}")

    async def scenario() -> None:
        for kind in ("timers", "delays", "transactions"):
            assert "Waiting" in await page(world, f"/waiting?kind={kind}", "viewer")
        assert (await world.ask("/waiting", by="narrow")).status == 403
        assert "not valid" in await page(world, "/waiting?kind=delays&level=x")

    world.run(scenario)
