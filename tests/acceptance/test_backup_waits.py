"""A backup of a node at work holds what waits: timers, a delayed message, undecided transactions."""

from __future__ import annotations

from pathlib import Path

from tests.acceptance.conftest import StartNode, command
from tests.acceptance.test_timers import asked, page, sent
from tests.acceptance.test_transactions import LATER, listed, send
from tests.patient import Consumer


def test_restored_node_serves_what_waited(start_node: StartNode, tmp_path: Path) -> None:
    """It tells of no damage."""
    node = start_node(configuration=LATER)
    sent(node, "orders", "--delay", "20s")
    far = sent(node, "orders", "--delay", "300d")
    gone = sent(node, "orders", "--delay", "1h")
    moved = sent(node, "orders", "--delay", "90d")
    [half] = send(node, "half")
    sent(node, "orders", "--delay-level", "18")
    assert asked(node, "cancel", gone["handle"])[0]["outcome"] == "cancelled"
    backup, back = tmp_path / "backup", tmp_path / "back"
    assert command("store", "backup", tmp_path / "data", backup).code == 0
    node.stop()
    done = command("store", "restore", backup, back)
    assert done.code == 0, done.err
    restored = start_node("--config", tmp_path / "node.yaml", "--data", back, configuration=LATER)
    waiting = {each["id"] for each in asked(restored, "list")}
    assert {far["id"], moved["id"]} <= waiting
    assert gone["id"] not in waiting
    assert [each["id"] for each in listed(restored)] == [half]
    asked(restored, "reschedule", moved["handle"], "--at", "in 1s")
    with Consumer(restored.ready["consumer"], "billing", linger_ms=10_000) as consumer:
        assert next(iter(consumer)).key == "key of orders"
    metrics = page(restored, "/metrics")
    assert 'pyddmq_delays_pending{level="18"} 1.0' in metrics
    damage = [line for line in metrics.splitlines() if "damaged_total" in line and not line.startswith("#")]
    assert not [line for line in damage if not line.endswith(" 0.0")]
