"""One list of findings, and the levels that follow from it."""

from __future__ import annotations

import pytest

from lag.rules.statuses import BY_NAME
from proxy.operate.attention.judgement import Judgement, LagQueues, judgement
from proxy.operate.attention.kinds import KINDS, found
from proxy.operate.views.findings import Finding
from proxy.operate.views.lag import LagQueue
from tests.admin_node import NOW_MS
from tests.lag_answers import lag_queue


def judged(queues: list[LagQueue], *findings: Finding, **lag: object) -> Judgement:
    """Return the judgement of these queues and findings."""
    return judgement(LagQueues(now_ms=NOW_MS, queues=queues, **lag), findings)  # type: ignore[arg-type]


def about(kind: str, *, bad: bool = True, **more: object) -> Finding:
    """A finding about the group of `lag_queue`."""
    return found(kind, bad, "text", **{"group": "billing", "topic": "orders", **more})


@pytest.mark.parametrize("status", BY_NAME)
def test_level_of_a_group_and_of_the_node_is_that_of_the_status(status: str) -> None:
    """A status alone, for every status; what is not OK is a finding, but for INCOMPLETE."""
    made = judged([lag_queue(queue=0), lag_queue(queue=1, status=status)])
    level = BY_NAME[status].level.name
    assert (made.level, made.groups[0].level) == (level, level)
    assert len(made.findings) == (level != "OK" and status != "INCOMPLETE")
    for finding in made.findings:
        assert (finding.status, finding.queue, finding.bad) == (status, 1, level == "ERR")


@pytest.mark.parametrize(("bad", "level"), [(True, "ERR"), (False, "WARN")])
def test_finding_makes_its_group_and_the_node_worse(bad: bool, level: str) -> None:
    """Also while the lag rules find nothing, and for that group alone."""
    made = judged([lag_queue(), lag_queue("audit")], about("poison", bad=bad))
    assert (made.level, [(each.group, each.level, each.finding) for each in made.groups]) == (
        level,
        [("audit", "OK", None), ("billing", level, "poison")],
    )
    assert made.as_lag(limit=10, group="billing").level == level
    assert made.as_lag(limit=10, group="audit").level == "OK"
    assert made.as_lag(limit=10, group="no such group").level == "UNKNOWN"


def test_only_what_stops_every_group_of_the_node_counts_for_one() -> None:
    """A full disk does, a refused reload does not; the node has both."""
    refused, full = found("reload_refused", True, "text"), found("disk_full", True, "text")
    made = judged([lag_queue()], refused)
    assert (made.level, made.as_lag(limit=1, group="billing").level) == ("ERR", "OK")
    made = judged([lag_queue()], refused, full)
    answer = made.as_lag(limit=1, group="billing")
    assert (answer.level, [each.finding for each in answer.findings]) == ("ERR", ["disk_full"])


def test_status_and_finding_that_say_the_same_are_one_finding() -> None:
    """With the text and command of the finding, and the cause of the rules; the one about the held message has it."""
    held = lag_queue(
        queue=3, status="BLOCKED", lag=9, held_offset=7, cause="poison_message", evidence="offset 7 was tried 9 times"
    )
    other, own = about("poison", queue=3, offset=2), about("poison", queue=3, offset=7)
    made = judged([held], other, own)
    assert [(each.offset, each.status, each.cause, each.evidence) for each in made.findings] == [
        (2, None, None, ""),
        (7, "BLOCKED", "poison_message", "offset 7 was tried 9 times"),
    ]
    assert {each.text for each in made.findings} == {"text"}


def test_sink_that_waits_is_not_called_a_group_without_consumers() -> None:
    """The finding that names the server explains why nothing moves, and becomes as bad as that is."""
    made = judged(
        [lag_queue(status="STOP", cause="no_consumer", evidence="no client pulls")], about("sink_waits", bad=False)
    )
    [finding] = made.findings
    assert (finding.finding, finding.bad, finding.status, finding.cause) == ("sink_waits", True, "STOP", None)


def test_cause_of_the_rules_brings_its_advice() -> None:
    """Messages that were deleted with their topic need no longer retention."""
    queue = lag_queue(
        status="DATA_LOSS", cause="topic_deleted", evidence="it begins anew", advice="See the audit trail."
    )
    [finding] = judged([queue], about("lost_to_retention")).findings
    assert (finding.text, finding.cause, finding.advice) == ("text", "topic_deleted", "See the audit trail.")


def test_status_without_a_finding_becomes_one_with_the_advice_of_the_rules() -> None:
    """One for all queues of a topic that are alike, with the one that is furthest behind as evidence."""
    queues = [
        lag_queue(queue=number, status="STOP", lag=number, cause="no_consumer", evidence=f"lag {number}", advice="Do.")
        for number in range(4)
    ]
    made = judged([*queues, lag_queue(topic="other", status="WARN")])
    assert [(each.finding, each.text, each.advice, each.count) for each in made.findings] == [
        (
            "no_puller",
            "Group billing on topic orders: STOP in 4 queues, the worst is 3: lag 3.",
            "Do. `pyddmq groups show billing` shows more.",
            4,
        ),
        (
            "lag",
            f"Group billing on topic other: WARN in queue 0: {BY_NAME['WARN'].meaning}",
            f"{BY_NAME['WARN'].advice} `pyddmq lag billing` shows more.",
            1,
        ),
    ]


def test_stop_with_another_cause_is_not_called_a_group_without_clients() -> None:
    """What the rules name is the cause."""
    [finding] = judged([lag_queue(status="STOP", cause="push_target_failing", evidence="x")]).findings
    assert finding.finding == "lag"


def test_missing_consumer_is_named_before_the_stop_limit() -> None:
    """A lag that rises since no client pulls is a `no_puller` to watch; with another cause it is `lag`."""
    for cause, kind in (("no_consumer", "no_puller"), ("slow_consumer", "lag")):
        [finding] = judged([lag_queue(status="WARN", cause=cause, evidence="x")]).findings
        assert (finding.finding, finding.level) == (kind, "WARN")


def test_group_with_empty_queues_alone_is_ok_and_one_without_samples_is_unknown() -> None:
    """Nothing known is not nothing wrong."""
    made = judged([], groups=["audit", "billing"], empty={"audit": 4})
    assert [(each.group, each.status, each.level, each.lag) for each in made.groups] == [
        ("audit", "OK", "OK", 0),
        ("billing", "UNKNOWN", "UNKNOWN", None),
    ]
    assert made.level == "UNKNOWN"


def test_limit_cuts_the_list_of_queues_and_nothing_else() -> None:
    """The worst queues stay; level, sums and findings are of all."""
    queues = [lag_queue(queue=number, lag=1, unfinished=1) for number in range(20)]
    made = judged([*queues, lag_queue(queue=20, status="STOP", lag=None, unfinished=None)])
    answer = made.as_lag(limit=1)
    assert (answer.level, [each.queue for each in answer.queues], answer.queues_total) == ("ERR", [20], 21)
    [group] = answer.groups
    assert (group.lag, group.unfinished, group.queues, group.queues_unknown) == (20, 20, 21, 1)


def test_every_status_of_the_table_of_kinds_is_a_status() -> None:
    """A renamed status would silently be a finding of its own."""
    assert {status for kind in KINDS.values() for status in kind.statuses} <= BY_NAME.keys()


def test_node_without_samples_is_unknown_or_err() -> None:
    """Its findings still count, and nobody takes it for well."""
    assert judged([], enabled=False).level == "UNKNOWN"
    assert judged([], about("paused", bad=False), enabled=False).level == "UNKNOWN"
    assert judged([], about("poison"), enabled=False).level == "ERR"
