"""Lag on the status page."""

from __future__ import annotations

from html.parser import HTMLParser

from proxy.admin import page
from proxy.admin.lag_table import lag_section
from proxy.operate.attention.findings import judged
from proxy.operate.attention.judgement import LagQueues
from tests.admin_node import NOW_MS, busy_node
from tests.lag_answers import lag_judgement, lag_queue


class Texts(HTMLParser):
    """Collects texts in their order."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.found: list[str] = []
        self.feed(html)

    def handle_data(self, data: str) -> None:
        self.found.append(data)


def test_worst_group_stands_on_top_with_cause_and_forecast() -> None:
    """What a person on call needs first."""
    stuck = lag_queue(
        status="BLOCKED",
        queue=3,
        lag=40,
        unfinished=38,
        time_lag_ms=240_000,
        produce_rate=0.5,
        cause="poison_message",
        evidence="key order-7 failed 9 times",
    )
    answer = lag_judgement([lag_queue("audit"), lag_queue(), stuck])
    texts = Texts(lag_section(answer)).found
    row = texts[texts.index("billing") :]
    assert row[:6] == [
        "billing",
        "BLOCKED",
        "4 min",
        "38",
        "grows by 0.5/s",
        "poison message: key order-7 failed 9 times",
    ]
    assert texts.index("billing") < texts.index("audit")
    assert '<span class="chip bad">BLOCKED</span>' in lag_section(answer)
    assert '<span class="chip good">OK</span>' in lag_section(answer)


def test_group_is_shown_queue_by_queue() -> None:
    """The worst on top, and of no other group."""
    answer = lag_judgement([lag_queue(queue=0), lag_queue(queue=1, status="STOP"), lag_queue("audit", "secret")])
    texts = Texts(lag_section(answer, "billing")).found
    assert texts.index("STOP") < texts.index("OK")
    assert "secret" not in texts


def test_what_comes_from_outside_is_escaped() -> None:
    """Names, keys and failures are of others' making."""
    bad = "<script>alert(1)</script>"
    answer = lag_judgement([lag_queue(bad, bad, status="STOP", cause="no_consumer", evidence=bad)])
    for html in (lag_section(answer), lag_section(answer, bad)):
        assert "<script" not in html
        assert html.count("&lt;script") >= 2


def test_page_without_a_judgement_says_so() -> None:
    """Nothing known is not nothing wrong."""
    node = busy_node()
    node.lag_view = LagQueues(now_ms=NOW_MS, enabled=False)
    html = page.render(node, judged(node))
    assert html is not None
    assert "Lag is not judged" in html
    node.group_list = []
    assert "Lag is not judged" in (page.render(node, judged(node)) or "")
    unknown = lag_queue(status="UNKNOWN", unfinished=None, lag=None, time_lag_ms=None, time_lag_low_ms=None)
    assert "?" in Texts(lag_section(lag_judgement([unknown]))).found
