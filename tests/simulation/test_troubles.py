"""Findings of a node: every kind is staged, and what they say over restarts and starts."""

from __future__ import annotations

from proxy.operate.attention.kinds import KINDS
from tests.simulation.staged import STAGES
from tests.simulation.ward import Ward
from tests.verdicts.of_lag import SITUATIONS

ELSEWHERE = {
    "call_stuck",
    "kafka_classic",
    "kafka_trouble",
    "kafka_topic_trouble",
    "kafka_producer_broken",
    "kafka_unreachable",
    "kafka_waiting",
    "lag_webhook",
    "tls_expiring",
    "tls_crl_expiring",
    "tls_reload_refused",
}
"""Staged where there is what they need: tests/unit/upstream/calls, tests/unit/upstream/kafka, tests/tls,
test_node_verdicts and test_waiting_in_kafka."""


def test_every_kind_of_finding_is_staged() -> None:
    """No rule is without a trouble that brings it about."""
    # A thread that hangs has no place in virtual time: tests/unit/upstream/running/test_calling.py.
    staged = {stage.kind for stage in STAGES.values()} | {each.kind for each in SITUATIONS.values() if each.kind}
    assert staged == set(KINDS) - ELSEWHERE


def test_since_is_the_first_failure_through_all_attempts() -> None:
    """Neither a redelivery nor a further failure begins it anew, in the lists of keys and of stuck messages."""
    ward = Ward(lambda wanted: wanted["groups"][0]["topics"][0].update(retryIntervals=[300, -1], maxRetry=-1))
    ward.send("orders", "k")
    ward.send("orders", "k")

    def since() -> set[int]:
        [stuck, *_] = ward.view.stuck(group="by-key", count_max=10)[0]  # type: ignore[index]
        [key] = ward.view.groups(details_max=10)[0].topics[0].stuck_keys
        return {stuck.since_ms, key.since_ms}

    ward.fail(1)
    [first] = since()
    for _ in range(5):
        ward.run(2)
        ward.fail(1)
        assert since() == {first}
        ward.pull()
        assert since() == {first}
        ward.run(2)


def test_time_of_a_failure_before_the_restart_is_told_as_at_least() -> None:
    """The journal keeps how often a message failed, not since when: the node does not make that up."""
    ward = Ward(STAGES["poison_key"].prepare)
    ward.send("orders", "k")
    ward.fail(6)
    assert " deliveries in more than " not in ward.appears("poison").text
    ward.restart(kill=True)
    found = ward.appears("poison")
    assert "6 deliveries in more than " in found.text
    assert found.attempts == 6


def test_node_that_starts_says_so_and_has_no_other_finding() -> None:
    """From its first moment on, before there is a store to ask about; when it is ready there is none."""
    ward = Ward()
    ward.send("orders", "k")
    ward.world.kill()
    node, task = ward.world.begin()
    ward.observe(node)
    seen = set()
    while not task.done():
        [finding] = ward.findings()
        seen.add(finding.text.split(".")[0])
        ward.world.run(seconds=0.001)
    assert {"The node is starting", "The node is recovering"} <= seen
    ward.world.node = node
    assert ward.findings() == []
