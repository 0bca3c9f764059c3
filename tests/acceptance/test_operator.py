"""The operator's commands against a real node: stuck messages, pauses, offsets, tokens."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest

from proxy.cli.admin_client import post
from proxy.operate.views.changes import PauseResult
from pyddmq import OutgoingMessage
from tests.acceptance.conftest import FREE_PORTS, NodeProcess, StartNode, command
from tests.patient import LINGER_MS, Consumer, Producer

CONFIGURATION = """
topics:
  orders: {queues: 1}
groups:
  - group: billing
    topics:
      - topic: orders
        orderKey: KEY
        actions: [Async, PullServer]
        timeout: 600000
        retryIntervals: [600000, 600000, 600000]
"""


def send(node: NodeProcess, *keys: str | None) -> None:
    """Publish a message per key."""
    with Producer(node.ready["producer"]) as producer:
        producer.send_batch([OutgoingMessage(topic="orders", body=b"x", key=key) for key in keys])


def pulled(node: NodeProcess, count: int, *, fail: bool = False) -> list[int]:
    """Offsets of so many messages that a consumer gets and acks, or fails."""
    found: list[int] = []
    with Consumer(node.ready["consumer"], "billing", linger_ms=LINGER_MS) as consumer:
        while len(found) < count:
            for message in consumer.pull(count_max=count - len(found)):
                found.append(message.offset)
                (consumer.fail if fail else consumer.ack)(message)
    return found


def rest(node: NodeProcess, count: int) -> list[int]:
    """As `pulled`, and whatever comes at once after them."""
    found = pulled(node, count)
    with Consumer(node.ready["consumer"], "billing", linger_ms=300) as consumer:
        return found + [message.offset for message in consumer.pull()]


def groups(node: NodeProcess, *arguments: str) -> Any:
    """Run a command of `groups` and return its JSON."""
    done = command("groups", *arguments, *node.admin(), "--json")
    assert done.code == 0, done.err
    [answer] = done.json_lines()
    return answer


@pytest.fixture
def node(start_node: StartNode) -> NodeProcess:
    """A node with one ordered group whose retries are ten minutes away."""
    return start_node(configuration=CONFIGURATION)


def test_stuck_key_is_shown_and_ended_three_ways(node: NodeProcess) -> None:
    """`stuck` names the head; `retry`, `dead-letter` and `skip` end its wait, and the key goes on in order."""
    send(node, "k", "k", "k", "k")
    assert pulled(node, 1, fail=True) == [0]
    assert rest(node, 0) == []
    [head] = groups(node, "stuck", "billing")["stuck"]
    assert (head["key"], head["queue"], head["offset"], head["state"]) == ("k", 0, 0, "retrying")
    assert (head["attempts"], head["holder"], head["waiting"], len(head["id"])) == (1, None, 3, 32)
    table = command("groups", "stuck", *node.admin())
    assert "waits for its retry" in table.out
    assert "pyddmq groups retry" in table.out

    asked = command("groups", "retry", "billing", "--key", "k", *node.admin())
    assert asked.code == 2
    assert "offset 0" in asked.err
    assert "--yes" in asked.err
    assert groups(node, "retry", "billing", "--key", "k", "--yes")["changed"] is True
    assert pulled(node, 1, fail=True) == [0]
    place = ["--topic", "orders", "--queue", "0", "--offset"]
    assert groups(node, "dead-letter", "billing", *place, "0", "--key", "k")["offset"] == 0
    assert pulled(node, 1, fail=True) == [1]

    wrong = command("groups", "skip", "billing", *place, "0", *node.admin())
    assert wrong.code == 5
    assert "already finished" in wrong.err
    behind = command("groups", "skip", "billing", *place, "2", *node.admin())
    assert "waits for an earlier message of key 'k': queue 0, offset 1" in behind.err
    assert groups(node, "skip", "billing", *place, "1")["changed"] is True
    assert rest(node, 2) == [2, 3]
    counters = command("stats", *node.admin(), "--json").json_lines()[0]["counters"]
    assert counters["pyddmq_skipped_messages_total"] == 1
    assert counters["pyddmq_dead_letters_total"] == 1
    assert '"change": "skip_message"' in node.log_path.read_text()


def test_message_that_is_out_is_taken_back_by_force_only(node: NodeProcess) -> None:
    """The refusal names the holder; with --force another client gets the message."""
    send(node, "k")
    with Consumer(node.ready["consumer"], "billing", linger_ms=LINGER_MS) as consumer:
        [message] = consumer.pull()
        place = ["--topic", "orders", "--queue", "0", "--offset", str(message.offset)]
        refused = command("groups", "retry", "billing", *place, *node.admin())
        assert refused.code == 5
        assert "in flight with 127.0.0.1:" in refused.err
        assert groups(node, "retry", "billing", *place, "--force")["changed"] is True
        assert rest(node, 1) == [0]


def test_pause_outlives_a_kill_and_a_reload(start_node: StartNode, tmp_path: Path) -> None:
    """While it is paused nobody gets anything, and everything says so; after `resume` all comes."""
    node = start_node(configuration=CONFIGURATION)
    send(node, "a", "b")
    paused = groups(node, "pause", "billing")
    assert paused == {"group": "billing", "changed": True, "pausedTopics": ["orders"]}
    assert groups(node, "pause", "billing")["changed"] is False
    node.stop(signal.SIGKILL)
    changed = CONFIGURATION.replace("timeout: 600000", "timeout: 500000\n        pressureTraffic: true")
    node = start_node(configuration=changed)
    assert rest(node, 0) == []
    [group] = groups(node, "billing")["groups"]
    assert group["topics"][0]["pausedBy"] == "127.0.0.1"
    assert "paused" in command("groups", *node.admin()).out
    unknown = command("groups", "pause", "billing", "--topic", "nothing", *node.admin())
    assert (unknown.code, "does not subscribe" in unknown.err) == (11, True)
    assert groups(node, "resume", "billing")["pausedTopics"] == []
    assert rest(node, 2) == [0, 1]


def test_offsets_are_shown_and_moved_after_a_dry_run(node: NodeProcess) -> None:
    """The dry run counts what would be skipped and repeated and changes nothing; --yes does it, for good."""
    send(node, *"abcdef")
    assert pulled(node, 4) == [0, 1, 2, 3]
    reset = ["offsets", "reset", "billing", "--topic", "orders", *node.admin()]
    shown = command("offsets", "show", "billing", *node.admin(), "--json").json_lines()[0]["offsets"]
    assert [(each["committed"], each["max"], each["lag"]) for each in shown] == [(4, 6, 2)]
    dry = command(*reset, "--to-offset", "1")
    assert "nothing was changed: 0 unfinished messages would be skipped, 3 finished messages delivered again" in dry.out
    assert pulled(node, 1) == [4]
    done = command(*reset, "--to-offset", "1", "--yes", "--json").json_lines()[0]
    assert done["changed"] is True
    assert [(each["from"], each["to"], each["repeated"]) for each in done["queues"]] == [(5, 1, 4)]
    assert rest(node, 5) == [1, 2, 3, 4, 5]
    for options, start in (
        (["--earliest"], 0),
        (["--latest"], 6),
        (["--shift-by", "-2"], 4),
        (["--to-time", "2000-01-01T00:00:00Z"], 0),
    ):
        answer = command(*reset, *options, "--yes", "--json").json_lines()[0]
        assert answer["queues"][0]["to"] == start, options
    for options, code in ((["--to-offset", "7"], 5), (["--earliest", "--latest"], 2), ([], 2), (["--to-time", "x"], 2)):
        assert command(*reset, *options).code == code, options
    assert command("offsets", "reset", "nobody", "--topic", "orders", "--earliest", *node.admin()).code == 11


def test_offsets_of_a_stopped_store_are_shown_and_moved(start_node: StartNode, tmp_path: Path) -> None:
    """With --data the same commands work without a node, refuse a store in use, and the next start goes on there."""
    node = start_node(configuration=CONFIGURATION)
    send(node, *"abcdef")
    assert pulled(node, 4) == [0, 1, 2, 3]
    data = ["--data", str(tmp_path / "data")]
    used = command("offsets", "show", *data)
    assert used.code == 6
    node.stop(signal.SIGKILL)
    shown = command("offsets", "show", *data, "--json").json_lines()[0]["offsets"]
    assert [(each["committed"], each["max"]) for each in shown] == [(4, 6)]
    reset = ["offsets", "reset", "billing", "--topic", "orders", "--shift-by", "-2", *data]
    assert "2 finished messages delivered again; pass --yes to apply" in command(*reset).out
    assert command(*reset, "--yes", "--json").json_lines()[0]["queues"][0]["to"] == 2
    assert command("offsets", "reset", "billing", "--topic", "orders", "--to-offset", "9", *data).code == 5
    assert command("offsets", "show", "--data", tmp_path / "nothing").code == 6
    assert rest(start_node(configuration=CONFIGURATION), 4) == [2, 3, 4, 5]


def test_reset_waits_for_what_is_out(node: NodeProcess) -> None:
    """While a client holds a message a reset is refused and changes nothing; with --force it is done."""
    send(node, "k", "k")
    with Consumer(node.ready["consumer"], "billing", linger_ms=LINGER_MS) as consumer:
        [message] = consumer.pull()
        reset = ["offsets", "reset", "billing", "--topic", "orders", "--latest", "--yes", *node.admin()]
        refused = command(*reset, "--wait", "0")
        assert refused.code == 5
        assert "still in flight with clients" in refused.err
        assert command("offsets", "show", *node.admin(), "--json").json_lines()[0]["offsets"][0]["committed"] == 0
        assert command(*reset, "--force").code == 0
        consumer.ack(message)
        send(node, "k")
        assert [each.offset for each in consumer.pull()] == [2]


def test_changes_need_the_token_of_the_file(
    start_node: StartNode, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With adminTokenFile, commands that change something bring the token or are refused; reading needs none."""
    token = tmp_path / "token"
    token.write_text("sesame\n")
    node = start_node(configuration=f"node: {{adminTokenFile: {token}}}\n{CONFIGURATION}")
    refused = command("groups", "pause", "billing", *node.admin())
    assert refused.code == 5
    assert "PYDDMQ_ADMIN_TOKEN" in refused.err
    assert command("groups", *node.admin()).code == 0
    monkeypatch.setenv("PYDDMQ_ADMIN_TOKEN_FILE", str(token))
    assert post(node.ready["admin"], "/api/groups/pause", {"group": "billing"}, PauseResult).changed is True
    assert "sesame" not in node.log_path.read_text()
    node.stop()
    missing = CONFIGURATION.replace("topics:", f"node: {{adminTokenFile: {tmp_path}/none}}\ntopics:", 1)
    (tmp_path / "bad.yaml").write_text(missing)
    done = command("serve", "--config", tmp_path / "bad.yaml", "--data", tmp_path / "other", *FREE_PORTS)
    line = missing.splitlines().index(f"node: {{adminTokenFile: {tmp_path}/none}}") + 1
    assert (done.code, f"bad.yaml:{line}: node.adminTokenFile: " in done.err) == (3, True)
