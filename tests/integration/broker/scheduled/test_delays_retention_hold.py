"""Log files that are about to go, and the delayed messages in them."""

from __future__ import annotations

from broker.retention import RetentionLimits
from broker.scheduled.delay import metrics as counted
from broker.scheduled.delay.retention_hold import DelayHold
from tests.integration.delay_tools import TOPIC, Broker, broker


def retaining(made: Broker) -> Broker:
    """Let the log keep two of its files."""
    made.store.retention.holds.append(DelayHold(made.delays, made.metrics))
    made.store.retention.limits = RetentionLimits(log_bytes=2 * 4096)
    return made


def fill(made: Broker) -> None:
    """Publish four files' worth, and have the checkpoint cover them."""
    for _ in range(8):
        made.store.put(TOPIC, b"y" * 1500)
    made.clock.advance(11)
    made.store.checkpoint()


def step(made: Broker) -> None:
    """Let retention do all that it can."""
    for _ in range(20):
        if not made.store.retention.step():
            return


def test_file_waits_for_what_is_not_due() -> None:
    """A message of two hours keeps its file for two hours and no longer, whatever the log's size."""
    made = retaining(broker())
    made.send(b"x", 18)
    fill(made)
    step(made)
    assert made.store.min_offset == 0
    assert made.store.retention.waiting is not None
    made.scheduler.advance(7200)
    assert made.delivered()[-1] == b"x"
    step(made)
    assert made.store.min_offset > 0
    assert made.store.retention.waiting is None


def test_refused_message_is_put_again() -> None:
    """Its file goes; it stays pending, and is delivered once that is possible, also after a kill."""
    made = retaining(broker())
    made.store.create_topic("gone", 1)
    made.send(b"stuck", 2, "gone", key="k")
    made.store.topic_changes.delete("gone")
    made.scheduler.advance(5)
    fill(made)
    step(made)
    assert made.store.min_offset > 0
    assert (made.metrics.value(counted.PUT_BACK), made.pending) == (1, 1)
    made = made.again()
    assert made.pending == 1
    made.store.create_topic("gone", 1)
    made.scheduler.advance(20)
    assert made.delivered("gone") == [b"stuck"]
    assert made.pending == 0
