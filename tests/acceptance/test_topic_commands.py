"""`pyddmq topics create | alter | show | delete` against a real node."""

from __future__ import annotations

import json

from proxy.process.exit_codes import ExitCode
from tests.acceptance.conftest import NodeProcess, command


def test_life_of_a_topic(node: NodeProcess) -> None:
    """Made, written to, widened, shown, deleted after the name was given again, gone."""
    admin = node.admin()
    done = command("topics", "create", "made", "--queues", "2", *admin)
    assert (done.code, done.out) == (ExitCode.OK, "topic made exists, with 2 queues\n")
    assert command("send", "made", "x", "--partition", "0", *node.producer()).code == ExitCode.OK
    assert len(json.loads(command("topics", "alter", "made", "--queues", "3", "--json", *admin).out)["queues"]) == 3
    typed = command("topics", "alter", "made", "--type", "fifo", *admin)
    assert (typed.code, typed.out) == (ExitCode.OK, "topic made has 3 queues and takes FIFO\n")
    unkeyed = command("send", "made", "x", *node.producer())
    assert (unkeyed.code, "is of the type FIFO" in unkeyed.err) == (ExitCode.REFUSED, True)
    assert "FIFO" in command("topics", *admin).out
    assert "Topic made (FIFO)" in command("topics", "show", "made", *admin).out
    shown = json.loads(command("topics", "show", "made", "--json", *admin).out)["topics"][0]
    assert shown["messageType"] == "FIFO"
    assert [queue["max"] for queue in shown["queues"]] == [1, 0, 0]
    assert json.loads(command("topics", "made", "--json", *admin).out)["topics"][0] == shown
    unsure = command("topics", "delete", "made", *admin)
    assert (unsure.code, "--yes made" in unsure.err) == (ExitCode.USAGE, True)
    wrong = command("topics", "delete", "made", "--yes", "mad", *admin)
    assert (wrong.code, "nothing was deleted" in wrong.err) == (ExitCode.USAGE, True)
    gone = command("topics", "delete", "made", "--yes", "made", *admin)
    assert (gone.code, gone.out) == (ExitCode.OK, "topic made is deleted; 1 message deleted\n")
    assert command("topics", "made", *admin).code == ExitCode.NOT_FOUND
    again = json.loads(command("topics", "create", "made", "--type", "NORMAL", "--json", *admin).out)
    assert (again["messageType"], len(again["queues"])) == ("NORMAL", 4)


def test_refusals_are_sentences(node: NodeProcess) -> None:
    """Exit code 5 and what to do, for fewer queues, a subscribed topic, and a listed one."""
    admin = node.admin()
    fewer = command("topics", "alter", "orders", "--queues", "1", *admin)
    needed = command("topics", "delete", "orders", "--yes", "orders", "--force", *admin)
    assert (fewer.code, needed.code) == (ExitCode.REFUSED, ExitCode.REFUSED)
    assert "can only grow" in fewer.err
    assert "Group billing subscribes to topic orders" in needed.err
