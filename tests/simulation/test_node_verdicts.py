"""Verdicts of a node in virtual time: logged where they change, counted, posted; over restarts and reloads."""

from __future__ import annotations

from typing import Any, ClassVar

import pytest
from structlog.testing import capture_logs

from proxy.admin.exposition import VERDICT, NodeCollector
from proxy.operate.lookups.lag import lag_of
from proxy.recording import verdicts
from proxy.recording.verdicts import CHANGES, POSTS
from tests.simulation.test_queue_samples import ward_of
from tests.simulation.ward import Ward


class Posts:
    """Stands for the webhook's thread."""

    made: ClassVar[list[Posts]] = []

    def __init__(self, url: str, timeout_ms: int) -> None:
        self.url, self.timeout_ms, self.closed = url, timeout_ms, False
        self.trouble: str | None = None
        self.counts = {"sent": 0, "failed": 0, "refused": 0, "dropped": 0}
        self.offered: list[dict[str, Any]] = []
        self.made.append(self)

    def offer(self, changes: list[dict[str, Any]]) -> None:
        """Take all but the second, which is refused."""
        for each in changes:
            self.offered.append(each)
            refused = len(self.offered) == 2
            self.counts["refused" if refused else "sent"] += 1
            self.trouble = "the webhook answered 400" if refused else None

    def close(self) -> None:
        """End."""
        self.closed = True


@pytest.fixture(autouse=True)
def posts(monkeypatch: pytest.MonkeyPatch) -> list[Posts]:
    """What was posted, by webhook."""
    monkeypatch.setattr(verdicts, "Webhook", Posts)
    monkeypatch.setattr(Posts, "made", [])
    return Posts.made


def ward_with(**lag: Any) -> Ward:
    """A node with one queue, and one group that reads nothing."""

    def prepare(wanted: dict[str, Any]) -> None:
        wanted["lag"] = lag

    return ward_of(prepare)


def neglect(ward: Ward) -> None:
    """Let a message wait until the rules find that nothing consumes it."""
    ward.send("orders", "k")
    ward.run(230)


def said(logs: list[Any]) -> list[tuple[str, str | None, str]]:
    """Group, status before and status of each change in the log."""
    return [(each["group"], each["before"], each["status"]) for each in logs if each["event"] == "lag_verdict_changed"]


def gauges(ward: Ward) -> list[tuple[str, str, str, float]]:
    """Group, status, recipients and value of each sample of the gauge."""
    families = NodeCollector(ward.view, "virtual").collect()
    samples = [sample for family in families if family.name == VERDICT for sample in family.samples]
    labels = [(each.labels, each.value) for each in samples]
    return [(each["group"], each["status"], each["alarm_group"], value) for each, value in labels]


def test_change_is_one_line_one_count_and_one_post(posts: list[Posts]) -> None:
    """Worse at once, better when it has held; what the webhook refuses is counted and not offered again."""
    ward = ward_with(webhook="http://127.0.0.1:1/lag")
    with capture_logs() as logs:
        neglect(ward)
        assert said(logs) == [("by-key", "OK", "NOT_CONSUMED")]
        for place in ward.pull():
            ward.answer(place, success=True)
        ward.run(120)
    assert said(logs) == [("by-key", "OK", "NOT_CONSUMED"), ("by-key", "NOT_CONSUMED", "OK")]
    [hook] = posts
    assert [each["status"] for each in hook.offered] == ["NOT_CONSUMED", "OK"]
    metrics = ward.node.runtime.metrics
    assert metrics.value(CHANGES, "by-key", "ERR") == metrics.value(CHANGES, "by-key", "OK") == 1
    assert (metrics.value(POSTS, "sent"), metrics.value(POSTS, "refused")) == (1, 1)
    assert [each["fault"] for each in logs if each["event"] == "lag_webhook_failed"] == ["the webhook answered 400"]
    assert "the webhook answered 400" in ward.appears("lag_webhook").text
    hook.offer([{}])
    ward.goes("lag_webhook")


def test_gauge_has_the_reported_verdict_and_is_absent_without_alarms() -> None:
    """With the group's `alarmGroup`, for rules of Prometheus and routes of Alertmanager."""
    ward = ward_with()
    ward.edit_group(lambda groups: groups[0].update(alarmGroup=["on-call", "billing"]))
    neglect(ward)
    assert gauges(ward) == [("by-key", "NOT_CONSUMED", "on-call,billing", 2.0)]
    ward.finish()
    ward.run(100)
    assert gauges(ward) == [("by-key", "OK", "on-call,billing", 0.0)]
    ward.edit_group(lambda groups: groups[0].update(enableAlarm=False))
    ward.run(30)
    assert gauges(ward) == []


@pytest.mark.parametrize("kill", [True, False])
def test_restart_reports_once_more_what_is_or_was_not_ok(kill: bool) -> None:
    """The samples are recalled from the journal; a group that recovered while its change was not settled is closed."""
    ward = ward_with()
    neglect(ward)
    with capture_logs() as logs:
        ward.restart(kill=kill)
        ward.run(60)
        ward.finish()
        ward.restart(kill=kill)
        ward.run(100)
        ward.restart(kill=kill)
        ward.run(100)
    assert said(logs) == [("by-key", None, "NOT_CONSUMED"), ("by-key", None, "OK")]


def test_disabled_alarms_close_a_group_and_a_reload_opens_it_again() -> None:
    """A receiver of changes keeps no group open that is no longer judged."""
    ward = ward_with()
    neglect(ward)
    with capture_logs() as logs:
        ward.edit_group(lambda groups: groups[0].update(enableAlarm=False))
        ward.run(100)
        ward.edit_group(lambda groups: groups[0].update(enableAlarm=True))
        ward.run(30)
    assert said(logs) == [("by-key", "NOT_CONSUMED", "REMOVED"), ("by-key", None, "NOT_CONSUMED")]


def test_node_that_judges_no_longer_closes_what_it_reported(posts: list[Posts]) -> None:
    """At once: no round comes any more that could. Once it judges again it reports what is not OK."""
    ward = ward_with(webhook="http://127.0.0.1:1/lag")
    neglect(ward)
    with capture_logs() as logs:
        ward.wanted["lag"]["enabled"] = False
        assert ward.edit().accepted
        assert gauges(ward) == []
        ward.run(100)
        ward.wanted["lag"]["enabled"] = True
        assert ward.edit().accepted
        ward.run(60)
    assert said(logs) == [("by-key", "NOT_CONSUMED", "REMOVED"), ("by-key", None, "NOT_CONSUMED")]
    [hook] = posts
    assert [each["status"] for each in hook.offered] == ["NOT_CONSUMED", "REMOVED", "NOT_CONSUMED"]


def test_enable_alarm_false_is_silent() -> None:
    """As DDMQ's name says."""

    def prepare(wanted: dict[str, Any]) -> None:
        wanted["groups"][0]["enableAlarm"] = False

    ward = ward_of(prepare)
    with capture_logs() as logs:
        neglect(ward)
    assert said(logs) == []


@pytest.mark.parametrize("every", ["10s", "2m", "5m"])
def test_group_that_keeps_up_is_ok_however_seldom_it_is_sampled(every: str) -> None:
    """`lag.every` may be up to an hour, and is the only setting that anyone has to change for it."""
    ward = ward_with(every=every)
    found = set()
    for number in range(40):
        ward.send("orders", f"k{number}")
        ward.finish()
        ward.run(97)
        if number > 20:
            found.add(lag_of(ward.node, limit=10).level)
    assert found == {"OK"}
