"""Findings about a group, and how texts write figures."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from proxy.operate.text import age, amount, byte_size
from proxy.operate.views.node import StoreView
from tests.admin_node import NOW_MS, PlainNode, busy_node, findings
from upstream.state import JobState
from upstream.views import WHEREABOUTS


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


def test_keys_beyond_those_that_a_view_lists_are_counted() -> None:
    """The last finding says how many more keys are blocked."""
    node = busy_node()
    audit = node.group_list[0]
    [stuck, *_] = audit.topics[0].stuck_keys
    keys = [replace(stuck, key=f"k{number}") for number in range(100)]
    topic = replace(audit.topics[0], stuck_keys=keys, stuck_keys_total=5_000)
    found = findings(node, [replace(audit, topics=[topic])])
    assert found[-1].text.endswith("at least 95 more keys are blocked for a minute or longer.")
