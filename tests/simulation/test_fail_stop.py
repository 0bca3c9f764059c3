"""EIO at every place where a running node writes: it stops writing, says so, and keeps serving what is safe."""

from __future__ import annotations

import errno
import re
from collections.abc import Callable
from typing import Any

import pytest
from structlog.testing import capture_logs

from broker.errors import StoreFailed
from proxy.node.node import Node
from proxy.node.reload import Reloader
from proxy.operate.live_node import LiveNode
from pyddmq.testing import NetworkFaults, SimDisk
from tests.insides import opened_of
from tests.simulation.clients import PERFECT, ProducerHabits
from tests.simulation.world import World

SEGMENT_BYTES = 131_072

SITES = [
    ("write", "/commitlog/"),
    ("sync", "/commitlog/"),
    ("sync_folder", "/commitlog"),
    ("remove", "/commitlog/"),
    ("replace", "/commitlog/"),
    ("create", "/pyddmq/segment.new"),
    ("truncate", "/pyddmq/segment.new"),
    ("allocate", "/pyddmq/segment.new"),
    ("sync", "/pyddmq/segment.new"),
    ("write", "/consumequeue/"),
    ("sync", "/consumequeue/"),
    ("create", "/consumequeue/"),
    ("allocate", "/consumequeue/"),
    ("sync_folder", "/consumequeue/"),
    ("remove", "/consumequeue/"),
    ("write", "/pyddmq/checkpoint.json"),
    ("sync", "/pyddmq/checkpoint.json"),
    ("replace", "/pyddmq/checkpoint.json"),
    ("write", "/data/checkpoint"),
    ("sync", "/data/checkpoint"),
    ("write", "/config/topics.json"),
    ("sync", "/config/topics.json"),
    ("replace", "/config/topics.json"),
    ("write", "/pyddmq/topics.json"),
    ("sync", "/pyddmq/topics.json"),
    ("write", "/config/consumerOffset.json"),
    ("sync", "/config/consumerOffset.json"),
    ("replace", "/config/consumerOffset.json"),
    ("write", "/pyddmq/consumerOffset.json"),
    ("sync", "/pyddmq/consumerOffset.json"),
    ("write", "/pyddmq/acks/"),
    ("sync", "/pyddmq/acks/"),
    ("allocate", "/pyddmq/acks/"),
    ("replace", "/pyddmq/acks/0"),
    ("sync_folder", "/pyddmq/acks"),
    ("create", "/config/consumerOffset.json"),
    ("truncate", "/config/consumerOffset.json"),
    ("create", "/config/topics.json"),
    ("truncate", "/config/topics.json"),
    ("create", "/pyddmq/checkpoint.json"),
    ("truncate", "/pyddmq/checkpoint.json"),
    ("create", "/pyddmq/consumerOffset.json"),
    ("truncate", "/pyddmq/consumerOffset.json"),
    ("replace", "/pyddmq/consumerOffset.json"),
    ("create", "/pyddmq/topics.json"),
    ("truncate", "/pyddmq/topics.json"),
    ("replace", "/pyddmq/topics.json"),
    ("create", "/pyddmq/deduplication"),
    ("truncate", "/pyddmq/deduplication"),
    ("write", "/pyddmq/deduplication"),
    ("sync", "/pyddmq/deduplication"),
    ("replace", "/pyddmq/deduplication"),
    ("create", "/pyddmq/retention.json"),
    ("truncate", "/pyddmq/retention.json"),
    ("write", "/pyddmq/retention.json"),
    ("sync", "/pyddmq/retention.json"),
    ("replace", "/pyddmq/retention.json"),
    ("sync_folder", "/data/consumequeue"),
    ("sync_folder", "/data/config"),
    ("sync_folder", "/data/pyddmq"),
]
"""Operation, and a part of the path."""

FAILURE_LINES = (
    "store_failed",
    "acks_refused",
    "offsets_not_written",
    "periodic_work_failed",
    "turn_callback_failed",
    "ack_journal_reserve_missing",
)


class Watched(SimDisk):
    """Notes every change by operation and path."""

    def __init__(self) -> None:
        super().__init__()
        self.done: list[tuple[str, str]] = []

    def step(self, operation: str, path: str, partly: Callable[[], None] | None = None) -> None:
        super().step(operation, path, partly)
        self.done.append((operation, path))


def delete_early(wanted: dict[str, Any]) -> None:
    """Set a limit that old log files are above."""
    wanted["topics"].update(extra={"queues": 1})
    wanted["node"].update(retentionBytes=2 * SEGMENT_BYTES)


class Running(World):
    """A node with a backlog for one group, a consumer of another, and files that go while it works."""

    def __init__(self) -> None:
        super().__init__(7, faults=NetworkFaults())
        self.watched = Watched()
        self.disk = self.watched
        self.start()
        self.add_producer(ProducerHabits(broken_json_share=0.0))
        self.add_consumer("by-key", PERFECT)
        self.run(seconds=2)
        self.watched.done.clear()

    @property
    def running(self) -> Node:
        """The node."""
        assert self.node is not None
        return self.node

    def work(self) -> None:
        """Publish, pull, ack, make a topic, roll files and delete old ones, until something fails."""

        def failed() -> bool:
            return self.running.failure is not None

        self.run(seconds=12, until=failed)
        self.reload(lambda wanted: wanted["topics"].update(extra={"queues": 1}))
        self.run(seconds=3, until=failed)
        assert self.reload(delete_early, accept_loss=True).accepted or failed()
        self.run(seconds=40, until=failed)


def is_site(operation: str, path: str) -> bool:
    """Whether the table has this place."""
    return any(operation == each and part in path for each, part in SITES)


def test_table_has_every_place_where_a_running_node_writes() -> None:
    """A new file, or a new way to write one, needs its line in the table."""
    world = Running()
    world.work()
    assert world.running.failure is None
    done = set(world.watched.done)
    # The index can be rebuilt from the log at any time: an error there costs the index alone. One in the lag journal
    # costs rounds of it (`test_recorder`), one of the visible end that readers see less (`test_visible_end`).
    apart = ("/index", "/pyddmq/lag", "/pyddmq/visible-end")
    done = {(operation, path) for operation, path in done if not any(part in path for part in apart)}
    # A reserve that cannot be put in its place is made later.
    done.discard(("replace", "/data/pyddmq/acks/spare"))
    left = {(operation, re.sub(r"[0-9]{4,}", "N", path)) for operation, path in done if not is_site(operation, path)}
    assert left == set()
    assert [site for site in SITES if not any(site[0] == each and site[1] in path for each, path in done)] == []
    world.stop()


@pytest.mark.parametrize(("operation", "part"), SITES)
def test_error_of_the_disk_stops_the_write_side_and_nothing_else(operation: str, part: str) -> None:
    """Publishes are refused, one log line and readiness say file, error and since when; pulls and acks go on."""
    world = Running()
    # A write to a queue's page that cannot be read is made once more, with the whole page.
    for _ in range(2 if (operation, part) == ("write", "/consumequeue/") else 1):
        world.watched.fail(operation, error=errno.EIO, path_part=part)
    before = world.watched.done
    with capture_logs() as logs:
        world.work()
        node = world.running
        assert node.state == "failed"
        # A sync that was under way may end.
        world.run(seconds=0.05)
        failed_at = len(before)
        [line] = [line["event"] for line in logs if line["event"] in FAILURE_LINES]
        assert line == "store_failed"
        [why, since] = LiveNode(node, Reloader(node, lambda: world.load({}))).reasons
        assert re.search(rf"failed \(\S*{re.escape(part.rstrip('/'))}\S*\): Input/output error", why)
        assert "restart" in why
        assert since.startswith("Since 20")
        assert node.runtime.metrics.value("pyddmq_store_failed") == 1
        with pytest.raises(StoreFailed):
            opened_of(node).store.put("orders", b"{}")
        refused = node.runtime.metrics.value("pyddmq_sends_refused_total", "10")
        world.run(seconds=2)
        assert node.runtime.metrics.value("pyddmq_sends_refused_total", "10") > refused
        assert opened_of(node).progress.failed is None or "acks" in why
        if opened_of(node).progress.failed is None:
            world.add_consumer("free", PERFECT)
            world.run(seconds=2)
            assert node.runtime.metrics.value("pyddmq_finished_messages_total", "free", "events") > 20
        world.run(seconds=8)
        assert len([line for line in logs if line["event"] in FAILURE_LINES]) == 1
    if operation in ("write", "sync"):
        assert [done for done in world.watched.done[failed_at:] if done[0] == "sync" and part in done[1]] == []
    world.kill()
    world.start()
    assert world.running.state == "ready"
