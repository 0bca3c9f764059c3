"""The status page, its findings and its figures."""

from __future__ import annotations

from html.parser import HTMLParser

import pytest
from msgspec.structs import replace

from proxy.admin import page
from proxy.admin.entry.access_pages import Viewer
from proxy.admin.style import CSS, CSS_SHA256
from proxy.admin.tables import ROWS_MAX
from proxy.operate.attention.findings import judged
from proxy.operate.text import age, amount, byte_size
from proxy.operate.views.node import ConnectionView, StoreView
from tests.admin_node import NOW_MS, PlainNode, busy_node, findings
from upstream.state import JobState
from upstream.views import WHEREABOUTS, Delivery, GroupView

_VOID = {"meta"}


class _Outline(HTMLParser):
    """Checks that tags nest, and collects the tags and the text."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.texts: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        if tag not in _VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def _outline(html: str | None) -> _Outline:
    assert html is not None
    outline = _Outline()
    outline.feed(html)
    assert outline.open == []
    return outline


def test_page_of_a_busy_node_shows_who_has_what_since_when() -> None:
    """Lag in messages and seconds, holders by address, stuck keys and clients all stand on the page."""
    node = busy_node()
    node.loop_lag = lambda: 0.0042
    outline = _outline(page.render(node, judged(node)))
    text = "|".join(outline.texts)
    for fact in (
        "permits-audit",
        "105",
        "5 min 12 s",
        "case-10011",
        "127.0.0.1:50312 (carrera-go 1.2)",
        "10.0.0.7:41020",
        "4.2 ms",
        "fifo",
    ):
        assert fact in text
    assert "script" not in outline.tags
    # In the tables of stuck keys, of deliveries and of connections.
    assert outline.texts.count("127.0.0.1:50312 (carrera-go 1.2)") == 3


def test_page_without_anything_yet_is_whole() -> None:
    """A node that has neither groups nor clients nor an open store still gives a page."""
    node = PlainNode()
    node.state, node.reasons, node.store_view = "recovering", ("The log is being read, 40 % done.",), None
    text = "|".join(_outline(page.render(node, judged(node))).texts)
    assert "The node is recovering. The log is being read, 40 % done." in text
    assert "No group is configured." in text


def test_page_escapes_whatever_comes_from_outside() -> None:
    """Keys, groups, topics and addresses chosen by others cannot become markup."""
    evil = "\"><script>alert('x')</script>&amp;"
    node = busy_node()
    subscription = node.group_list[0].topics[0]
    stuck = [
        replace(key, key=evil, qid=evil, holder=evil, holder_client=evil, topic=evil) for key in subscription.stuck_keys
    ]
    topic = replace(subscription, topic=evil, state=evil, stuck_keys=stuck)
    out = [Delivery(topic=evil, qid=evil, offset=1, holder=evil, holder_client=evil, since_ms=0)]
    node.group_list = [GroupView(group=evil, topics=[topic], in_flight=out, in_flight_total=1)]
    node.topic_list = [replace(each, topic=evil) for each in node.topic_list]
    node.connection_list = [ConnectionView(address=evil, service=evil, since_ms=0, requests=1, state=evil, client=evil)]
    for group in (None, evil):
        html = page.render(node, judged(node), group=group)
        assert html is not None
        assert "<script" not in html
        assert evil in _outline(html).texts


def test_page_bounds_its_tables() -> None:
    """With 10,000 clients and 5,000 deliveries the page stays small and says how many there are."""
    node = busy_node()
    node.connection_list = [
        ConnectionView(address=f"10.0.0.1:{n}", service="consumer", since_ms=n, requests=n, state="idle")
        for n in range(10_000)
    ]
    out = [Delivery(topic="permits", qid="q", offset=n, holder=f"h{n}", since_ms=n) for n in range(5_000)]
    node.group_list = [replace(node.group_list[0], in_flight=out)]
    html = page.render(node, judged(node))
    assert html is not None
    assert len(html) < 100_000
    assert "50 of 10,000" in html
    assert "summed up from 2,000 of 5,000 messages" in html


def test_page_of_one_group_lists_its_queues() -> None:
    """The group's own page names each queue with committed offset and end; an unknown group has none."""
    text = "|".join(_outline(page.render(busy_node(), judged(busy_node()), group="permits-audit")).texts)
    assert "pyddmq_broker-0_1" in text
    assert page.render(busy_node(), judged(busy_node()), group="nobody") is None


def test_page_refreshes_itself_unless_told_not_to() -> None:
    """The refresh is a header of the document, so that it works without scripts and can be stopped."""
    moving = page.render(PlainNode(), judged(PlainNode()))
    still = page.render(PlainNode(), judged(PlainNode()), refresh=False)
    assert moving is not None
    assert still is not None
    assert 'http-equiv="refresh"' in moving
    assert 'http-equiv="refresh"' not in still


def test_style_sheet_matches_its_hash() -> None:
    """The sum in the security policy is that of the sheet on the page, else browsers would drop it."""
    html = page.render(PlainNode(), judged(PlainNode()))
    assert html is not None
    assert f"<style>{CSS}</style>" in html
    assert CSS_SHA256.startswith("sha256-")


def test_findings_name_the_key_that_holds_others() -> None:
    """A key held for a minute is named with its holder; one held for a second is not."""
    node = busy_node()
    texts = [finding.text for finding in findings(node, node.group_list, 0.0)]
    assert texts == [
        "Group permits-audit on topic permits: key case-10011 is in flight with 127.0.0.1:50312 for 5 min 12 "
        "s (offset 900, 2 deliveries, 37 messages behind it). To end it: pyddmq groups retry permits-audit "
        "--topic permits --queue 0 --offset 900 --force (or skip, dead-letter)"
    ]


def test_findings_tell_a_key_that_failed_from_one_that_is_out() -> None:
    """What failed is held since its first failure; who has it now may have it for a moment only."""
    node = busy_node()
    [stuck, *_] = node.group_list[0].topics[0].stuck_keys
    failed = replace(stuck, reason="no answer from 10.0.0.9:1 within 60000 ms")
    topic = replace(node.group_list[0].topics[0], stuck_keys=[failed])
    [finding] = findings(node, [replace(node.group_list[0], topics=[topic])], 0.0)
    assert finding.text.startswith(
        "Group permits-audit on topic permits: key case-10011 has been blocked for 5 min 12 s (offset 900, 2 "
        "deliveries, 37 messages behind it), now with 127.0.0.1:50312; the last failure: no answer from "
        "10.0.0.9:1 within 60000 ms."
    )


def test_findings_tell_what_retention_took_and_is_about_to_take() -> None:
    """A loss is shown for a day; a group near to one is told how long and how much is left."""
    node = busy_node()
    subscription = replace(
        node.group_list[0].topics[0],
        lost=1_200,
        lost_at_ms=NOW_MS - 7_200_000,
        expires_seconds=10_800.0,
        expires_bytes=134_217_728,
        expires_share=0.05,
        stuck_keys=(),
    )
    group = replace(node.group_list[0], topics=[subscription], in_flight=(), in_flight_total=0)
    found = findings(node, [group], 0.0)
    texts = [finding.text for finding in found]
    assert not any(finding.bad for finding in found), "nothing is lost now"
    assert "1,200 messages deleted before the group received them, the last 2 h ago." in texts[0]
    assert "retention deletes its oldest unfinished message by age in 3 h or by size after another 128 MiB" in texts[1]
    full = replace(group, topics=[replace(subscription, expires_seconds=None, expires_bytes=0)])
    assert "deletes its oldest unfinished message by size with the next messages." in findings(node, [full])[1].text
    quiet = replace(subscription, lost_at_ms=NOW_MS - 90_000_000, expires_share=0.5)
    assert findings(node, [replace(group, topics=[quiet])]) == []
    now = replace(quiet, lost_at_ms=NOW_MS - 60_000)
    assert [finding.bad for finding in findings(node, [replace(group, topics=[now])])] == [True]


def test_findings_put_the_failed_node_first() -> None:
    """A node that no longer acknowledges stands above a late loop and a nearly full disk."""
    node = PlainNode()
    node.state, node.reasons = "failed", ("A sync of the log failed: input/output error.",)
    node.store_view = StoreView(path="/srv/data", used_bytes=1, free_bytes=1_000_000, flush="sync")
    found = findings(node, [], 2.5)
    assert [finding.bad for finding in found] == [True, False, False]
    assert found[0].text == "The node is failed. A sync of the log failed: input/output error."


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-3.0, "0 s"),
        (0.0, "0 s"),
        (0.4, "0.4 s"),
        (9.96, "10 s"),
        (59.6, "1 min"),
        (185.0, "3 min 5 s"),
        (3_600.0, "1 h"),
        (90_061.0, "1 d 1 h"),
        (86_460.0, "1 d"),
    ],
)
def test_age_reads_in_its_two_largest_units(seconds: float, text: str) -> None:
    """Ages are short and never show a unit that is not there."""
    assert age(seconds) == text


def test_figures_read_like_a_person_would_write_them() -> None:
    """Counts carry their noun in the right number, sizes three digits."""
    assert [amount(n, "message") for n in (0, 1, 12_000)] == ["0 messages", "1 message", "12,000 messages"]
    assert amount(2, "delivery") == "2 deliveries"
    assert [byte_size(n) for n in (0, 980, 1_572_864, 134_217_728, 10**16)] == [
        "0 B",
        "980 B",
        "1.50 MiB",
        "128 MiB",
        "9,094.95 TiB",
    ]


def test_every_place_of_a_held_message_has_words() -> None:
    """No state of a job that may stand first of its key is shown as a bare word."""
    passing = {JobState.READ, JobState.WAITING, JobState.OUT, JobState.FINISHED, JobState.ABANDONED}
    assert {state.value for state in JobState if state not in passing} <= set(WHEREABOUTS)


def test_page_names_ports_that_are_open_to_anybody() -> None:
    """First of all, and only where there are no rules."""
    node = PlainNode()
    assert "access: open" not in (page.render(node, judged(node)) or "")
    node.access = "open"
    html = page.render(node, judged(node))
    assert html is not None
    assert "<code>access: open</code>" in html
    assert html.index("access: open") < html.index("Nothing needs attention")


def test_page_says_who_looks_and_how_to_go() -> None:
    """The name is escaped; signing out is a form, for a link of another site could do it else."""
    viewer = Viewer(principal="<anna>", way="token", by_session=True, may_sign_in=True, may_administer=False)
    html = page.render(PlainNode(), judged(PlainNode()), viewer=viewer)
    assert html is not None
    assert "&lt;anna&gt;</b>" in html
    assert '<form method="post" action="/sign-out">' in html
    assert "/audit" not in html
    assert 'content="5; url=/?again=1"' in html
    by_network = Viewer(principal="here", way="network", by_session=False, may_sign_in=True, may_administer=True)
    html = page.render(PlainNode(), judged(PlainNode()), viewer=by_network)
    assert html is not None
    assert "<a href=/sign-in>sign in</a>" in html
    assert 'href="/audit"' in html
    assert 'content="5"' in html


def test_findings_that_are_not_shown_are_counted() -> None:
    """On the page, and within one finding: keys beyond those that a view lists."""
    node = busy_node()
    [audit, billing] = node.group_list
    topics = [replace(billing.topics[0], topic=f"t{number}", reading_stopped=True) for number in range(ROWS_MAX + 7)]
    node.group_list = [replace(billing, topics=topics)]
    assert "And 7 more findings" in (page.render(node, judged(node)) or "")
    [stuck, *_] = audit.topics[0].stuck_keys
    keys = [replace(stuck, key=f"k{number}") for number in range(100)]
    topic = replace(audit.topics[0], stuck_keys=keys, stuck_keys_total=5_000)
    found = findings(node, [replace(audit, topics=[topic])])
    assert found[-1].text.endswith("at least 95 more keys are blocked for a minute or longer.")
