"""A member that stood still for longer than its session."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.kafka.topics import committed
from tests.kafka_world import Clients
from upstream.kafka.link import Commit, KafkaPartition

pytestmark = pytest.mark.long

ROOT = Path(__file__).parents[2]
PROGRAM = """\
import sys
import structlog
from tests.kafka_world import Clients
from upstream.kafka.link import Commit
structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
address, name, protocol = sys.argv[1:]
clients = Clients(address)
member, heard = clients.joined("g-" + name, [name], group_protocol=protocol)
clients.until(heard.values, "a record")
print("has", flush=True)
sys.stdin.readline()
failure = clients.commit(member, Commit(name, 0, 1, "of the one that slept"))
print("fenced" if failure is not None and failure.fenced else f"taken {failure}", flush=True)
clients.until(heard.lost_places, "the loss")
print("lost", flush=True)
clients.end()
"""


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_member_that_stood_still_loses_all_and_commits_nothing(
    clients: Clients, topic: Callable[..., str], address: str, protocol: str
) -> None:
    """Others have its partition; its commit is fenced, and it is told of the loss."""
    name = topic()
    clients.send(name, [b"a", b"b"])
    sleeper = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, address, name, protocol],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert sleeper.stdin is not None
    assert sleeper.stdout is not None
    try:
        assert sleeper.stdout.readline() == "has\n"
        sleeper.send_signal(signal.SIGSTOP)
        member, heard = clients.joined(f"g-{name}", [name], group_protocol=protocol)
        assert heard.given[KafkaPartition(name, 0)].committed is None
        assert clients.commit(member, Commit(name, 0, 2, "of the other")) is None
        sleeper.stdin.write("go on\n")
        sleeper.stdin.flush()
        sleeper.send_signal(signal.SIGCONT)
        assert [sleeper.stdout.readline(), sleeper.stdout.readline()] == ["fenced\n", "lost\n"]
        assert committed(address, f"g-{name}", name) == (2, "of the other")
        # It has joined again, and its share comes by a revoke here.
        clients.until(lambda: sleeper.poll() is not None, "the sleeper to end")
    finally:
        sleeper.kill()
        sleeper.communicate()


def test_commit_for_a_partition_of_another_is_not_sent(
    clients: Clients, topic: Callable[..., str], address: str
) -> None:
    """The coordinator would take it: it looks at the generation alone."""
    name = topic()
    member, _ = clients.joined(f"g-{name}", [name])
    refused = clients.commit(member, Commit(name, 7, 1, ""))
    assert refused is not None
    assert refused.fenced
    assert committed(address, f"g-{name}", name)[0] < 0
