"""A real process with fewer descriptors than queues."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from pathlib import Path

from pyddmq import Consumer, Producer
from tests.acceptance.conftest import FREE_PORTS, NodeProcess
from tests.patient import until

TOPICS, QUEUES, LIMIT = 30, 8, 128
KEPT_FOR_QUEUES = LIMIT // 4
LIMITED = f"""
import os, resource, sys
resource.setrlimit(resource.RLIMIT_NOFILE, ({LIMIT}, {LIMIT}))
os.execv(sys.argv[1], sys.argv[1:])
"""
CONFIGURATION = """
node: {{queueFileUnits: 100}}
topics:
{topics}
groups:
  - {{group: readers, topics: [{subscriptions}]}}
"""


def start(folder: Path) -> NodeProcess:
    """Start a node that may have so few files open."""
    names = [f"topic-{number}" for number in range(TOPICS)]
    (folder / "node.yaml").write_text(
        CONFIGURATION.format(
            topics="\n".join(f"  {name}: {{queues: {QUEUES}}}" for name in names),
            subscriptions=", ".join(f"{{topic: {name}, actions: [PullServer]}}" for name in names),
        )
    )
    arguments: list[str | Path] = [*FREE_PORTS, "--config", folder / "node.yaml", "--data", folder / "data"]
    return NodeProcess(arguments, folder, before=(sys.executable, "-c", LIMITED))


def open_queue_files(node: NodeProcess) -> int:
    """How many files of queues the process has open."""
    folder = Path(f"/proc/{node.process.pid}/fd")
    found = 0
    for each in folder.iterdir():
        with contextlib.suppress(FileNotFoundError):  # It was closed meanwhile.
            found += "/consumequeue/" in os.readlink(each)
    return found


def test_node_with_more_queues_than_descriptors_stores_and_delivers_in_all_of_them(tmp_path: Path) -> None:
    """Files of queues take a part of the descriptors; also over a clean stop, a kill and both recoveries."""
    sent = set()
    for life, ending in enumerate((signal.SIGTERM, signal.SIGKILL)):
        node = start(tmp_path)
        try:
            with Producer(node.ready["producer"]) as producer:
                for topic in range(TOPICS):
                    for queue in range(QUEUES):
                        body = b"%d %d %d" % (life, topic, queue)
                        producer.send(f"topic-{topic}", body, partition_id=queue)
                        sent.add(body)
            assert open_queue_files(node) <= KEPT_FOR_QUEUES
        finally:
            code = node.stop(ending)
        assert code in (0, -signal.SIGKILL), node.log_path.read_text()[-2000:]
    node = start(tmp_path)
    try:
        got: list[bytes] = []

        def has_all() -> bool:
            for message in consumer.pull(patience_ms=500):
                got.append(message.body)
                consumer.ack(message)
            return len(got) >= len(sent)

        with Consumer(node.ready["consumer"], "readers") as consumer:
            until(has_all, f"{len(sent)} messages")
        assert sorted(got) == sorted(sent)
        assert open_queue_files(node) <= KEPT_FOR_QUEUES
    finally:
        node.stop()
