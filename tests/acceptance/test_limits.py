"""`pyddmq limits` against a real node: who has limits, and who is held to one."""

from __future__ import annotations

from pathlib import Path

import pytest

from pyddmq import Producer, RateLimited
from tests.acceptance.conftest import StartNode, command
from tests.patient import PATIENCE_MS

LIMITS = "limits: {addresses: [{networks: [127.0.0.0/8], requestsPerSecond: %s, connections: 50}]}\n"
TOPICS = "topics: {orders: {queues: 1}}\n"


def test_client_at_its_limit_is_listed_with_what_it_may(start_node: StartNode, tmp_path: Path) -> None:
    """Nobody at first; then who was refused, by name; and after a reload of the file the same client goes on."""
    config = tmp_path / "node.yaml"
    node = start_node(configuration=TOPICS + LIMITS % 0.01)
    quiet = command("limits", *node.admin())
    assert quiet.out.startswith("No client was limited within the last minute.")
    with Producer(node.ready["producer"], timeout_ms=PATIENCE_MS, resends=0) as producer:
        producer.send("orders", b"1")
        with pytest.raises(RateLimited) as refused:
            producer.send("orders", b"2")
        assert refused.value.retry_after_ms == 30_000, "it is told 100 seconds, and believes half a minute"
        shown = command("limits", *node.admin()).out
        assert "127.0.0.1" in shown
        assert "0.01 requests a second" in shown
        [answer] = command("limits", "127.0.0.1", *node.admin(), "--json").json_lines()
        assert [each["refused"] for each in answer["clients"][0]["held"]] == [1]
        nobody = command("limits", "10.0.0.1", *node.admin())
        assert (nobody.code, "is counted" in nobody.err) == (11, True)
        config.write_text(TOPICS + LIMITS % 1000)
        assert command("reload", *node.admin()).code == 0
        for number in range(3):
            producer.send("orders", b"%d" % number)
