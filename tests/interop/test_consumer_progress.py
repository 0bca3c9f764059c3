"""What `pyddmq lag backlog` says of a copied store of RocketMQ is what RocketMQ's own `consumerProgress` says of it."""

from __future__ import annotations

import base64
import json
import re
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest

from bench.rocketmq.processes import RocketProcess
from tests.conftest import need_module
from tests.interop.conftest import Surroundings
from tests.interop.sides import copied
from tests.interop.test_their_store import foreign_settings

pytestmark = pytest.mark.long

TOPIC: Final = "permits"
GROUP: Final = "permits-audit"
QUEUES: Final = 4
_ROW: Final = re.compile(rf"^{TOPIC}\s+\S+\s+(\d+)\s+(\d+)\s+(\d+)\s+(-?\d+)\s+-?\d+\s+\d.*$")


class Row(NamedTuple):
    """A line of `consumerProgress`: end and position of a queue, and how far they are apart."""

    queue: int
    end: int
    committed: int
    behind: int


def progress(rocket: Surroundings, folder: Path) -> tuple[list[Row], int]:
    """Run RocketMQ's command; returns its lines of the topic, and its total."""
    command = ["org.apache.rocketmq.tools.command.MQAdminStartup", "consumerProgress"]
    ran = RocketProcess(folder, rocket.shared.programs, [*command, "-n", rocket.shared.namesrv, "-g", GROUP])
    said, _ = ran.process.communicate(timeout=120)
    rows = [Row(int(m[1]), int(m[2]), int(m[3]), int(m[4])) for line in said.splitlines() if (m := _ROW.match(line))]
    total = re.search(r"Diff Total: (\d+)", said)
    assert total is not None, said
    assert rows, said
    return sorted(rows), int(total[1])


def sent(number: int, queue: int) -> dict[str, Any]:
    """Return a message as the client takes it."""
    body = base64.b64encode(b'{"case": "c%d"}' % (number % 3)).decode()
    return {"body": body, "tags": f"t{queue % 2}", "key": f"k{number % 5}", "properties": {}}


def backlog_of(root: Path, out: Path) -> dict[str, list[dict[str, Any]]]:
    """Make the report of the store's files; returns its rows by kind."""
    from lag.spark.jobs.program import main

    assert main(["backlog", "--data", str(root), "--group", GROUP, "--format", "json", "--out", str(out)]) == 0
    found: dict[str, list[dict[str, Any]]] = {}
    for row in json.loads(out.read_text(encoding="utf-8"))["rows"]:
        found.setdefault(row["kind"], []).append(row)
    return found


def ends_of(details: Sequence[dict[str, Any]]) -> dict[int, tuple[int, int, int]]:
    """Return committed, end and messages of each queue of the topic."""
    found = {}
    for row in details:
        topic, queue = row["name"].split(" / ")
        first, end = row["detail"].split(" to ")
        if topic == TOPIC:
            found[int(queue)] = int(first), int(end), row["messages"]
    return found


def test_backlog_of_their_store_is_what_their_command_says(rocket: Surroundings) -> None:
    """Queue by queue, of a group that consumed some and then stopped, from its own consumer offsets."""
    need_module("pyspark", "pip install 'pyddmq[spark]'")
    root = rocket.folder / "theirs"
    with rocket.broker("broker", foreign_settings(root, sums=False)) as broker, rocket.client() as client:
        client.make_topic(broker, TOPIC, QUEUES)
        for number in range(20):
            client.ask(do="send", topic=TOPIC, queue=number % QUEUES, messages=[sent(number, number % QUEUES)])
        client.consume(GROUP, TOPIC, deliveries=20)
        for number in range(31):
            queue = (0, 0, 3, 1)[number % 4]
            client.ask(do="send", topic=TOPIC, queue=queue, messages=[sent(number, queue)])
        theirs, total = progress(rocket, rocket.folder / "admin")
        broker.stop()
    assert [row.behind for row in theirs] == [16, 7, 0, 8]
    assert total == 31

    before_ms = time.time_ns() // 1_000_000
    ours = backlog_of(copied(root), rocket.folder / "backlog.json")
    waiting = [row for row in theirs if row.behind]
    assert ends_of(ours["queue"]) == {row.queue: (row.committed, row.end, row.behind) for row in waiting}
    assert sum(row["messages"] for row in ours["age"]) == total
    assert {row["name"]: row["messages"] for row in ours["tag"]} == {"t0": 16, "t1": 15}
    assert sum(row["messages"] for row in ours["key"]) == total
    assert all(0 <= row["oldest_seconds"] * 1000 <= before_ms for row in ours["queue"])
    assert "missing" not in ours
