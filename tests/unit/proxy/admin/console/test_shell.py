"""The console's shell and pages, without a browser: escaping, headers, rights, sharing of fragments."""

from __future__ import annotations

import asyncio
import dataclasses
import hashlib
import re
from collections.abc import Generator, Sequence
from html.parser import HTMLParser
from pathlib import Path

import pytest
from markupsafe import escape
from msgspec.structs import replace
from structlog.testing import capture_logs

import proxy.admin.console
from conf.sections.access import AccessRule
from conf.sections.admin import AdminConfig
from lag.samples import EventKind
from proxy.access.views import AuditEntry
from proxy.admin.console import shell
from proxy.admin.console.buttons import page_of
from proxy.admin.console.charts import sparkline
from proxy.admin.console.menu import PAGES
from proxy.admin.console.overview import FINDINGS_SHOWN, FindingRow, finding_rows
from proxy.admin.console.rates import SecondRates
from proxy.admin.console.shell import FAULT_TEXT, KEEP_SECONDS
from proxy.admin.console.templating import environment
from proxy.node.trouble_facts import ConfigurationView
from proxy.operate.attention.findings import judging
from proxy.operate.attention.judgement import Judgement, LagQueues
from proxy.operate.attention.kinds import KINDS, found
from proxy.operate.live_node import LiveNode
from proxy.operate.lookups.settings import without_secrets
from proxy.operate.views.lag_history import EventView, LagCourse
from proxy.operate.views.node import ConnectionView
from proxy.services.topic_port import MESSAGES_SENT
from pyddmq.testing import ManualClock, ManualScheduler
from tests.access.admin_world import AdminWorld, Answer
from tests.access.test_admin_gate import CHANGES
from tests.admin_node import NOW_MS, PlainNode, busy_node
from tests.console_page import call_of, fragment, shown
from tests.lag_answers import lag_queue
from upstream.views import Delivery, GroupView, StuckMessage

EVIL = "\"><script>alert('x')</script>&amp;"
OF_STORED_MESSAGES = ("/topic", "/message", "/dead-letters", "/waiting")
"""Pages that `tests/access/test_message_pages.py` asks with such names in stored messages."""
FOLDER = Path(proxy.admin.console.__file__).parent


class _Outline(HTMLParser):
    """Collects tags, attributes and texts."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[str] = []
        self.texts: list[str] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [name for name, _ in attrs]

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def evil_node() -> PlainNode:
    """Return a node on which each name that others choose is markup."""
    node = busy_node()
    subscription = node.group_list[0].topics[0]
    keys = [
        replace(key, key=EVIL, qid=EVIL, holder=EVIL, holder_client=EVIL, topic=EVIL, reason=EVIL)
        for key in subscription.stuck_keys
    ]
    topic = replace(subscription, topic=EVIL, state=EVIL, stuck_keys=keys, problem=EVIL)
    out = [Delivery(topic=EVIL, qid=EVIL, offset=1, holder=EVIL, holder_client=EVIL, since_ms=0)]
    node.group_list = [GroupView(group=EVIL, topics=[topic], in_flight=out, in_flight_total=1)]
    node.stuck_list = [
        StuckMessage(
            key=EVIL,
            topic=EVIL,
            qid=EVIL,
            offset=1,
            attempts=1,
            holder=EVIL,
            since_ms=0,
            reason=EVIL,
            group=EVIL,
            queue=0,
            id=EVIL,
            due_ms=1,
        )
    ]
    node.connection_list = [ConnectionView(address=EVIL, service=EVIL, since_ms=0, requests=1, state=EVIL, client=EVIL)]
    node.event_list = [EventView(at_ms=NOW_MS, event=EVIL, group=EVIL, topic=EVIL, queue=1, detail=EVIL)]
    node.settings_view = {"groups": {EVIL: {"group": EVIL, EVIL: EVIL, "topics": [{"topic": EVIL, EVIL: EVIL}]}}}
    node.configuration_view = faulty_configuration()
    node.topic_list = [replace(node.topic_list[0], topic=EVIL, kind=EVIL)]
    return node


def policy_of(answer: Answer) -> str:
    """Return what a page may load."""
    return str(answer.headers["Content-Security-Policy"])


def faulty_configuration() -> ConfigurationView:
    """Return the view of a file whose name and faults are markup."""
    problems = (EVIL, f"{EVIL}:1: {EVIL}", f"{EVIL}:7: {EVIL}")
    return ConfigurationView(file=EVIL, text=f"{EVIL}\n", refused_ms=1, problems=problems)


class _EvilAudit:
    """An audit trail of what somebody made up."""

    def recent(self, count: int) -> tuple[list[AuditEntry], int]:
        """Return one entry."""
        entry = AuditEntry(
            number=1, at_ms=NOW_MS, what=EVIL, outcome=EVIL, principal=EVIL, way=EVIL, address=EVIL, proof=EVIL
        )
        return [replace(entry, resource=EVIL, why=EVIL)], 1


@pytest.mark.parametrize("path", [each.path for each in PAGES if each.path not in OF_STORED_MESSAGES])
def test_page_escapes_what_others_choose_and_has_no_script(path: str) -> None:
    """Names, keys, errors and addresses are text; a fragment has neither scripts, styles, handlers nor htmx.

    A new page shows the names of `evil_node` too, or is tested with stored messages.
    """
    call = call_of(evil_node(), {"group": EVIL} if path == "/group" else {})
    html = shown(dataclasses.replace(call, audit=_EvilAudit()), path)  # type: ignore[arg-type]
    assert str(escape(EVIL)) in html
    outline = _Outline(html)
    assert not {"script", "style", "iframe", "object"} & set(outline.tags)
    assert [each for each in outline.attributes if each.startswith(("on", "hx-", "style", "nonce"))] == []
    assert "<script" not in html


def test_script_is_only_that_of_the_console() -> None:
    """No inline script or style is allowed, and the nonce is new for each page."""
    nonces = set()
    secrets = iter(range(256))
    world = AdminWorld(rules=None, random_bytes=lambda count: bytes([next(secrets)] * count))

    async def scenario() -> None:
        for _ in range(2):
            answer = await world.ask("/", headers={"Accept": "text/html"})
            policy = policy_of(answer)
            [nonce] = re.findall(r"script-src 'nonce-(\w+)';", policy)
            nonces.add(nonce)
            assert "unsafe" not in policy
            assert "default-src 'none'" in policy
            assert "require-trusted-types-for 'script'" in policy
            assert (
                answer.text.count("<script") == answer.text.count(f'<script defer nonce="{nonce}" src="/static/') == 5
            )
            assert " style=" not in answer.text
            assert " onclick=" not in answer.text

    world.run(scenario)
    assert len(nonces) == 2


def _asked(*paths: str) -> list[Answer]:
    """Ask a node that is the same each time."""
    world, answers = AdminWorld(rules=None), list[Answer]()

    async def scenario() -> None:
        for path in paths:
            answers.append(await world.ask(path))

    world.run(scenario)
    return answers


def test_page_that_takes_its_time_begins_before_it_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    """The menu comes at once, then the same content, or in its place what a page of its own would say."""
    paths = ("/", "/groups", "/group?group=nobody")
    whole = _asked(*paths)

    def slowly(node: LiveNode, *, leisurely: bool) -> Generator[None, None, Judgement]:
        yield from [None] * 20
        return (yield from judging(node, leisurely=leisurely))

    monkeypatch.setattr(shell, "FIRST_BYTE_SECONDS", 0)
    monkeypatch.setattr(shell, "judging", slowly)
    parts = _asked(*paths)
    assert [each.status for each in whole] == [200, 200, 404]
    assert [each.status for each in parts] == [200, 200, 200]
    assert all(each.headers["Transfer-Encoding"] == "chunked" and policy_of(each) for each in parts)
    nonce = re.compile(r'nonce="\w*"')
    assert [nonce.sub("", each.text) for each in parts[:2]] == [nonce.sub("", each.text) for each in whole[:2]]
    assert "<strong>404</strong>" in parts[2].text
    assert parts[2].text.endswith("</html>")
    monkeypatch.setattr(shell, "judging", None)
    with capture_logs() as logs:
        [faulty] = _asked("/topics")
    assert (faulty.status, faulty.text.endswith("</html>")) == (200, True)
    assert f"<strong>500</strong> {FAULT_TEXT}" in faulty.text
    assert [each["path"] for each in logs if each["event"] == "admin_request_failed"] == ["/topics"]


def test_browser_that_leaves_before_its_page_is_made_is_no_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody opened another page meanwhile: nothing is wrong with the node."""
    world = AdminWorld(rules=None)
    ends, left = asyncio.Event(), asyncio.Event()

    def endless(node: LiveNode, *, leisurely: bool) -> Generator[None, None, Judgement]:
        while not ends.is_set():
            yield
        left.set()
        return (yield from judging(node, leisurely=leisurely))

    monkeypatch.setattr(shell, "FIRST_BYTE_SECONDS", 0)
    monkeypatch.setattr(shell, "judging", endless)

    async def scenario() -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", world.port)
        writer.write(b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        await reader.readuntil(b"</header>")
        writer.transport.abort()
        await asyncio.sleep(0.05)
        ends.set()
        await left.wait()
        # The next page is made behind what was to be sent of the first.
        assert (await world.ask("/")).status == 200

    with capture_logs() as logs:
        world.run(scenario)
    assert (world.node.limited_log.faults, [each for each in logs if each["log_level"] == "error"]) == (0, [])


def test_fragment_that_did_not_change_is_not_sent_again() -> None:
    """By its ETag; the whole page says it, so that the first refresh has it."""
    world = AdminWorld(rules=None)

    async def scenario() -> None:
        whole = await world.ask("/groups")
        [etag] = re.findall(r'<data id="etag" value="&#34;(\w+)&#34;">', whole.text)
        again = await world.ask("/groups?again=1", headers={"If-None-Match": f'"{etag}"'})
        assert (again.status, again.text, again.headers["ETag"]) == (304, "", f'"{etag}"')
        assert (await world.ask("/groups?again=1", headers={"If-None-Match": '"other"'})).status == 200

    world.run(scenario)


def test_fragment_says_what_the_page_around_it_depends_on() -> None:
    """A browser loads the whole page again when that is another: its header names the state of the node."""
    world = AdminWorld(rules=None)

    async def scenario() -> None:
        whole = await world.ask("/groups")
        [shell] = re.findall(r'data-shell="([^"]+)"', whole.text)
        assert (await world.ask("/groups?again=1")).headers["Shell"] == shell == "0.2.0 ready"
        world.node.state = "draining"
        assert (await world.ask("/groups?again=1")).headers["Shell"] == "0.2.0 draining"

    world.run(scenario)


def test_fragment_is_computed_once_for_viewers_with_the_same_rights() -> None:
    """Two principals of one rule share it for two seconds; a principal of another rule never gets it."""
    rules = (AccessRule(principals=["viewer", "all"], view=["*"]), AccessRule(principals=["narrow"], view=["billing"]))
    world = AdminWorld(rules=rules)
    calls: list[None] = []
    world.node.events = lambda: calls.append(None) or []  # type: ignore[method-assign, func-returns-value]

    async def scenario() -> None:
        for person in ("viewer", "all", "narrow"):
            world.token(person)
        for person in ("viewer", "all", "viewer"):
            assert "Loop delay" in (await world.ask("/?again=1", by=person)).text
        assert len(calls) == 1
        assert "Loop delay" not in (await world.ask("/?again=1", by="narrow")).text
        assert len(calls) == 2
        world.clock.advance(KEEP_SECONDS)
        await world.ask("/?again=1", by="viewer")
        assert len(calls) == 3

    world.run(scenario)


def test_buttons_are_only_for_those_who_may_use_them() -> None:
    """A viewer sees the figures; an operator of the group has buttons; in read-only mode there are none."""
    world = AdminWorld(changes=CHANGES)

    async def scenario() -> None:
        assert "data-change" not in (await world.ask("/group?group=permits-audit", by="viewer")).text
        assert "data-change" not in (await world.ask("/group?group=permits-audit", by="narrow")).text
        assert "data-change" in (await world.ask("/group?group=permits-audit", by="all")).text
        assert "Reload" in (await world.ask("/node", by="all")).text
        assert "Reload" not in (await world.ask("/node", by="viewer")).text

    world.run(scenario)


def test_read_only_console_refuses_what_a_browser_sends_and_not_the_cli() -> None:
    """The setting is enforced by the route, not by the page."""
    world = AdminWorld(rules=None, changes=CHANGES)
    world.settings = AdminConfig(read_only=True)

    async def scenario() -> None:
        page = await world.ask("/group?group=permits-audit")
        assert ("data-change" in page.text, "read-only" in page.text) == (False, True)
        body = {"group": "permits-audit"}
        refused = await world.ask("/api/groups/pause", method="POST", json=body, headers=world.origin())
        assert (refused.status, refused.error) == (403, "The console is read-only (admin.readOnly); use the CLI.")
        assert (await world.ask("/api/groups/pause", method="POST", json=body)).status == 200

    world.run(scenario)


def test_node_with_a_token_and_no_rules_shows_no_buttons() -> None:
    """A browser has no way to send the token of `adminTokenFile`."""
    world = AdminWorld(rules=None, token="secret")

    async def scenario() -> None:
        page = await world.ask("/group?group=permits-audit")
        assert (page.status, "data-change" in page.text, "read-only" in page.text) == (200, False, True)

    world.run(scenario)


def test_change_of_another_site_is_refused() -> None:
    """A button's request comes from a page of the console: its origin, and JSON, which a form cannot send."""
    world = AdminWorld(rules=None, changes=CHANGES)

    async def scenario() -> None:
        path, body = "/api/groups/pause", {"group": "permits-audit"}
        for headers in ({"Origin": "https://evil.example"}, {"Sec-Fetch-Site": "cross-site"}):
            assert (await world.ask(path, method="POST", json=body, headers=headers)).status == 403
        assert (await world.ask(path, method="POST", data=body, headers=world.origin())).status == 415
        assert (await world.ask(path, method="POST", json=body, headers=world.origin())).status == 200

    world.run(scenario)
    assert [name for name, _ in world.done] == ["pause"]


def test_vendored_files_are_those_of_the_list_with_their_licences() -> None:
    """Each has its SHA-256; scripts and style sheets together stay below 95 kB."""
    folder = FOLDER / "static" / "vendor"
    listed = dict(line.split()[::-1] for line in (folder / "SHA256SUMS").read_text().splitlines())
    files = {each.name for each in folder.iterdir()} - {"SHA256SUMS"}
    assert files == listed.keys() | {"LICENSE.htmx", "LICENSE.uPlot"}
    for name, wanted in listed.items():
        assert hashlib.sha256((folder / name).read_bytes()).hexdigest() == wanted, name
    assert sum((folder / name).stat().st_size for name in listed) < 95_000


def test_static_files_are_open_and_bounded_to_the_list() -> None:
    """They are cached for good where their address has their sum; no other file of the package is served."""
    world = AdminWorld()

    async def scenario() -> None:
        style = await world.ask("/static/console.css")
        assert (style.status, style.headers["Cache-Control"]) == (200, "no-cache")
        version = style.headers["ETag"].strip('"')[:12]
        for given, is_lasting in ((version, True), ("of-another", False)):
            found = await world.ask(f"/static/console.css?v={given}")
            assert ("immutable" in found.headers["Cache-Control"]) == is_lasting
        for name in ("SHA256SUMS", "..%2Fshell.py", "%2e%2e/shell.py"):
            assert (await world.ask(f"/static/{name}")).status == 404

    world.run(scenario)


def test_findings_that_are_not_shown_are_counted() -> None:
    """The page stays short, and says how many more there are."""
    node = busy_node()
    billing = node.group_list[1]
    topics = [
        replace(billing.topics[0], topic=f"t{number}", reading_stopped=True) for number in range(FINDINGS_SHOWN + 7)
    ]
    node.group_list = [replace(billing, topics=topics)]
    assert "And 7 more findings" in fragment(node)


def test_key_turns_no_finding_round() -> None:
    """A sign that has text written from right to left would turn the figures behind it round."""
    finding = found("poison", True, "Group g on topic t: key \u202ek fails repeatedly: 12 deliveries (offset 345).")
    shown = FindingRow(finding=finding, buttons=[]).text
    assert shown == "Group g on topic t: key \\u202ek fails repeatedly: 12 deliveries (offset 345)."


def test_every_finding_leads_to_a_page_or_ends_by_a_button() -> None:
    """Those about the node, too: to transactions, what waits, clients, the file or the node."""
    node = busy_node()
    html = environment().from_string('{% import "parts.html" as parts %}{{ parts.findings(rows, 99, 0) }}')
    rows = finding_rows(call_of(node, {}), [found(kind, True, kind) for kind in KINDS][:FINDINGS_SHOWN])
    assert html.render(rows=rows).count('class="button" href="/') == FINDINGS_SHOWN
    paths = {page_of(found(kind, True, kind))[1].partition("?")[0] for kind in KINDS}
    assert paths <= {each.path for each in PAGES}
    [paused] = finding_rows(call_of(node, {}), [found("timers_paused", False, "paused")])
    assert [each.command for each in paused.buttons] == ["pyddmq timers resume all"]
    [quiet] = finding_rows(call_of(node, {}, read_only=True), [found("timers_paused", False, "paused")])
    assert quiet.buttons == []


def test_page_names_ports_that_are_open_to_every_client() -> None:
    """Above all else, and only where there are no rules."""
    node = PlainNode()
    assert "access: open" not in fragment(node)
    node.access = "open"
    html = fragment(node)
    assert html.index("access: open") < html.index("Nothing needs attention")


def test_pages_are_bounded() -> None:
    """With 10,000 clients and 5,000 deliveries pages stay small and say how many there are."""
    node = busy_node()
    node.connection_list = [
        ConnectionView(address=f"10.0.0.1:{n}", service="consumer", since_ms=n, requests=n, state="idle")
        for n in range(10_000)
    ]
    out = [Delivery(topic="permits", qid="q", offset=n, holder=f"h{n}", since_ms=n) for n in range(5_000)]
    node.group_list = [replace(node.group_list[0], in_flight=out)]
    clients, group = fragment(node, "/clients"), fragment(node, "/group", group="permits-audit")
    assert "10,000 connections" in clients
    assert "5,000 messages" in group
    assert max(len(clients), len(group)) < 150_000
    queues = [lag_queue(group="permits-audit", topic="permits", queue=n) for n in range(1_000)]
    names = ["permits-audit", *(f"g{n}" for n in range(1_000))]
    node.lag_view = LagQueues(now_ms=NOW_MS, groups=names, queues=queues)
    text = "\n".join(f"# {n}" for n in range(10_000))
    node.configuration_view = ConfigurationView(file="/etc/node.yaml", text=text)
    pages = {path: fragment(node, path, group="permits-audit") for path in ("/", "/group", "/configuration")}
    assert "12 of 1,001" in pages["/"]
    assert "200 of 1,000" in pages["/group"]
    assert "The first 3,000 of 10,000 lines" in pages["/configuration"]
    assert [each.count("<tr>") < 500 for each in pages.values()] == [True] * 3


def test_event_of_the_node_is_only_for_those_who_may_see_all() -> None:
    """A reload names groups; a viewer of one group sees the events of that group alone."""
    node = busy_node()
    node.event_list = [
        EventView(
            at_ms=NOW_MS, event=EventKind.RELOAD.value, group="", topic="", queue=-1, detail="group secret: more"
        ),
        EventView(at_ms=NOW_MS, event=EventKind.PAUSE.value, group="permits-audit", topic="", queue=-1, detail="by me"),
    ]
    world = AdminWorld()

    async def scenario() -> None:
        world.node.event_list = node.event_list
        for path in ("/", "/group?group=permits-audit"):
            for person, sees in (("narrow", False), ("viewer", True)):
                text = (await world.ask(path, by=person)).text
                assert ("by me" in text, "group secret" in text) == (True, sees), (path, person)

    world.run(scenario)


def test_rates_are_rises_of_counters_per_second() -> None:
    """The first sample has none; a second without traffic is 0."""
    clock, node = ManualClock(NOW_MS), busy_node()
    node.clock = clock
    rates = SecondRates(node, ManualScheduler(clock))
    for sent in (5, 20, 0):
        node.metrics.counter(MESSAGES_SENT, "permits").add(sent)
        clock.advance(1)
        rates.sample()
    assert (rates.hour_sums, rates.of_group("nobody").published[-1]) == ([20, 0], None)


def test_sparkline_leaves_out_what_is_not_known() -> None:
    """A gap begins a new line; the label is escaped."""
    html = sparkline([1, None, 2, float("nan"), 0], "<b>")
    assert html.count('class="line"') == 3
    assert 'aria-label="&lt;b&gt;"' in html


def test_configuration_is_shown_without_secrets() -> None:
    """By the names of settings, and in the query or user of a URL; the place of a secret is shown."""
    settings = {
        "headers": {"X-Api-Key": "k", "Accept": "text/html"},
        "urls": ["https://a:b@host/x?token=t"],
        "password": {"file": "/run/secret"},
        "tokens": "tokens.json",
        "apiKey": 12345678,
        "secret": {"kind": "hmac", "value": "v", "more": [1]},
        "passwords": ["p", {"of": "q"}, {"env": "P"}],
        "tokenNeeded": True,
    }
    assert without_secrets(settings) == {
        "headers": {"X-Api-Key": "***", "Accept": "text/html"},
        "urls": ["***@host/x?***"],
        "password": {"file": "/run/secret"},
        "tokens": "***",
        "apiKey": "***",
        "secret": {"kind": "***", "value": "***", "more": ["***"]},
        "passwords": ["***", {"of": "***"}, {"env": "P"}],
        "tokenNeeded": True,
    }


def test_errors_of_the_file_are_at_their_lines() -> None:
    """Beside the configuration in force; what has no line that is shown comes first."""
    node = busy_node()
    file = "/etc/node.yaml"
    node.configuration_view = ConfigurationView(
        file=file,
        text="topics:\n  permits: {queues: many}\ngroups: []",
        refused_ms=NOW_MS - 60_000,
        problems=(f"{file}:2:12: topics.permits.queues: must be an integer", f"{file}:9: gone", f"{file}: whole"),
    )
    html = fragment(node, "/configuration")
    assert '<span id="line-2" class="ERR"><b>2</b>  permits: {queues: many}\n<em>^ topics.permits.queues: must' in html
    assert html.count('class="ERR"><b>') == 1
    assert '<a href="#line-2">Line 2</a>: topics.permits.queues: must be an integer' in html
    assert f'<p class="mono">{file}:9: gone</p>' in html
    assert f'<p class="mono">{file}: whole</p>' in html
    assert "group: permits-audit" in html
    assert 'href="/configuration"' in fragment(node, "/node")
    node.configuration_view = ConfigurationView()
    assert "started without a file" in fragment(node, "/configuration")


def test_unknown_group_has_no_page() -> None:
    """The view refuses; the shell answers 404."""
    with pytest.raises(Exception, match="Not Found"):
        shown(call_of(busy_node(), {"group": "nobody"}), "/group")


def test_long_span_is_read_again_after_a_part_of_its_chart() -> None:
    """An hour after 20 s; a day or a month after 5 min, so that what happened lately is in it."""
    world = AdminWorld(rules=None)
    read: list[str] = []

    def course(*, group: str, span_ms: int) -> Generator[None, None, LagCourse]:
        yield
        read.append(group)
        return world.node.course_view

    world.node.course = course  # type: ignore[method-assign]

    async def scenario() -> None:
        for span, seconds in (("1h", 20), ("24h", 300), ("30d", 300)):
            page = f"/group?group=permits-audit&span={span}"
            read.clear()
            for step in (0, seconds - KEEP_SECONDS, KEEP_SECONDS):
                world.clock.advance(step)
                await world.ask(page)
                assert len(read) == (2 if step == KEEP_SECONDS else 1), (span, step)

    world.run(scenario)


def test_failure_is_not_kept() -> None:
    """A page that failed is computed again at the next request."""
    world = AdminWorld(rules=None)
    events = world.node.events

    def failing() -> Sequence[EventView]:
        raise RuntimeError("disk")

    async def scenario() -> None:
        world.node.events = failing  # type: ignore[method-assign]
        assert (await world.ask("/")).status == 500
        world.node.events = events  # type: ignore[method-assign]
        assert (await world.ask("/")).status == 200

    world.run(scenario)
