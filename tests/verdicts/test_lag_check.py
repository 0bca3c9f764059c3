"""`pyddmq lag check` of a simulated node: bounds of its caller, unknown groups, queues without messages."""

from __future__ import annotations

from tests.simulation.test_queue_samples import rounds, ward_of
from tests.verdicts.admin_port import AdminPort


def test_bound_of_the_caller_makes_a_check_fail() -> None:
    """A queue with more messages left, or further behind, is named with the bound."""
    ward = ward_of()
    port = AdminPort(ward)
    ward.run(40)
    ward.send("orders", "k")
    rounds(ward)
    ward.run(5)
    rounds(ward)
    assert port.command("lag", "check").code == 0
    lag = port.command("lag", "check", "--max-lag", "0")
    assert (lag.code, "by-key: orders 0 has 1 message left, --max-lag is 0" in lag.out) == (2, True)
    late = port.command("lag", "check", "--max-seconds", "1")
    assert (late.code, "by-key: orders 0 is behind by" in late.out) == (2, True)


def test_group_that_does_not_exist_is_not_well() -> None:
    """The check of a group that nothing configures ends with 3."""
    ward = ward_of()
    ward.run(40)
    assert AdminPort(ward).command("lag", "check", "--group", "nobody").code == 3


def test_queue_without_messages_needs_no_judgement() -> None:
    """Its group is OK from the first round on, and unknown before that."""
    ward = ward_of()
    port = AdminPort(ward)
    assert port.command("lag", "check").code == 3
    rounds(ward)
    ward.run(2)
    answer = port.json("/api/lag")
    assert (answer["level"], answer["queuesTotal"], answer["queuesEmpty"]) == ("OK", 0, 1)
    [group] = answer["groups"]
    assert (group["status"], group["level"], group["lag"]) == ("OK", "OK", 0)
