"""What deletes unfinished messages says so before, by group, and needs a confirmation: commands at a real node."""

from __future__ import annotations

from pathlib import Path

from proxy.process.exit_codes import ExitCode
from tests.acceptance.conftest import CONFIGURATION, NodeProcess, StartNode, command
from tests.acceptance.test_reload_and_stop import api, groups, wait_for
from tests.patient import Producer

SEGMENT_BYTES = 131_072
SMALL = f"node: {{segmentBytes: {SEGMENT_BYTES}, maxMessageBytes: 16384}}\n" + CONFIGURATION
SMALLER = SMALL.replace("16384", f"16384, retentionBytes: {2 * SEGMENT_BYTES}")


def test_smaller_log_is_refused_until_the_loss_is_accepted(start_node: StartNode, tmp_path: Path) -> None:
    """`config check --admin` and `reload` count what would go; `reload --accept-loss` deletes it."""
    file = tmp_path / "node.yaml"
    node = start_node(configuration=SMALL)
    with Producer(node.ready["producer"]) as producer:
        for number in range(60):
            producer.send("orders", bytes(8_000), key=str(number))
    asking = ("config", "check", str(file), "--admin", node.ready["admin"])
    assert command(*asking).code == ExitCode.OK
    file.write_text(SMALLER)
    for refused in (command(*asking), command("reload", *node.admin())):
        assert refused.code == ExitCode.REFUSED
        assert "node.yaml:1: node.retentionBytes: would immediately delete" in refused.out + refused.err
        assert "of group billing; run `pyddmq reload --accept-loss`" in refused.out + refused.err
    assert command("config", "check", str(file)).code == ExitCode.OK

    accepted = command("reload", "--accept-loss", *node.admin())
    assert (accepted.code, "retentionBytes" in accepted.out) == (ExitCode.OK, True)
    wait_for(lambda: oldest(node) > 0, "the oldest messages to go")
    assert command("reload", *node.admin()).out == "nothing changed\n"


def oldest(node: NodeProcess) -> int:
    """First kept offset of the first queue."""
    return int(api(node, "/api/topics?topic=orders")[1]["topics"][0]["queues"][0]["min"])


def test_losses_of_a_number_that_is_none_are_refused(start_node: StartNode) -> None:
    """The sentence names the limit and what was given."""
    node = start_node()
    status, answer = api(node, "/api/losses?retentionBytes=much")
    assert status == 400
    assert answer["error"]["message"] == "Invalid retentionBytes 'much'; pass a number, or an empty value for no limit."


def test_deletion_of_a_topic_says_which_groups_have_not_finished_it(start_node: StartNode, tmp_path: Path) -> None:
    """Also of a group that is not configured any more."""
    node = start_node()
    assert command("send", "orders", "x", *node.producer()).code == ExitCode.OK
    (tmp_path / "node.yaml").write_text(CONFIGURATION.partition("  - group: billing\n")[0])
    assert command("reload", *node.admin()).code == ExitCode.OK
    wait_for(lambda: groups(node) == {"permits-audit"}, "the group to leave")
    unsure = command("topics", "delete", "orders", "--force", *node.admin())
    assert unsure.code == ExitCode.USAGE
    assert "unfinished: 1 of group billing; pass --yes orders to delete" in unsure.err
