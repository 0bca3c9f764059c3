"""The account of memory beside the process's own, and what healthy clients notice, for each attack on a real node.

Each attack prints one line: the most that was in the account, how much the process grew, the healthy p99 before and
during it.
"""

from __future__ import annotations

import os
import re
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from tests.hostile.attacker import READ_BY_NONE
from tests.hostile.test_hostile_port import CEILING, MIB, attack, metrics, own_bytes
from tests.patient import PATIENCE_SECONDS, Producer, until
from tests.tls.conftest import Certificates

SENDS = 200
UNCOUNTED = 96 * MIB
"""What the process may take beside the account: what the allocator keeps, reads under way, the attack's own replies."""
BULK, BULK_BYTES = 260, 1_000_000
ATTACK_SECONDS = 2.0
SLOWED = CEILING * 6 // 8
NAME_SECONDS = 0.15
"""Time of the processor for 5 MB of a name that is not UTF-8, reading and answer included."""

CONFIGURATION = f"""
node: {{memoryMax: {CEILING}, frameTimeout: 30000, writeTimeout: 3000, maxConnections: 12000, logLevel: error,
       drainSeconds: 1, segmentBytes: 67108864}}
topics:
  orders: {{queues: 1}}
  bulk: {{queues: 1}}
groups:
  - group: billing
    topics: [{{topic: orders, timeout: 60000}}]
  - group: bulk
    topics: [{{topic: bulk, maxPullBatchSize: 32, concurrency: 100000, timeout: 600000}}]
"""

ATTACKS: dict[str, tuple[str | int, ...]] = {
    "replies unread": ("unread", 100),
    "replies unread, TLS": ("unread_tls", 250),
    "a byte at times": ("sip", 100),
    "unfinished frames": ("fill", 200),
    "small frames, idle": ("partial", 1_800, "idle", 600),
    "names not UTF-8": ("name", 12),
    "heads and bodies of HTTP": ("slow_header", 100, "slow_post", 100),
}


class Watch(threading.Thread):
    """Reads the account and the process's own memory while it is entered."""

    def __init__(self, node: Any) -> None:
        super().__init__(daemon=True)
        self.node = node
        self.account = self.own = 0
        self.looks = self.pressed = 0
        """How often the account was looked at, and found where the node reads less (slowed)."""
        self.ends = threading.Event()

    def run(self) -> None:
        while not self.ends.is_set():
            found = re.search(r'^pyddmq_memory_held_bytes\{what="connections"\} (\S+)$', metrics(self.node), re.M)
            held = int(float(found[1])) if found else 0
            self.looks += 1
            self.pressed += held >= SLOWED
            own = own_bytes(self.node)
            self.account, self.own = max(self.account, held), max(self.own, own)
            self.ends.wait(0.25)

    def __enter__(self) -> Watch:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.ends.set()
        self.join(PATIENCE_SECONDS)


def p99_ms(node: Any) -> float:
    """The 99th percentile of how long a publish takes, refusals and new connections included; of those of a minute."""
    took: list[float] = []
    ends = time.monotonic() + 60
    with Producer(node.ready["producer"], resends=200, resend_pause_ms=20, timeout_ms=30_000) as producer:
        while len(took) < SENDS and (began := time.monotonic()) < ends:
            producer.send("orders", bytes(1000))
            took.append(time.monotonic() - began)
    return sorted(took)[max(0, len(took) * 99 // 100 - 1)] * 1000


def cpu_seconds(node: Any) -> float:
    """Time of the processor that the node has taken; how busy the machine is does not matter."""
    fields = Path(f"/proc/{node.process.pid}/stat").read_text().rpartition(") ")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@pytest.mark.parametrize("name", ATTACKS)
def test_account_is_what_the_process_holds(name: str, start_node: Any, tmp_path: Path) -> None:
    """The process grows by no more than the account says, and some; healthy publishes all come through.

    Each is sent 200 times at most, for as long as the node refuses it: 4 s.
    """
    folder = tmp_path / "certificates"
    folder.mkdir()
    files = Certificates(folder).node_files
    tls = f"tls: {{certificate: {files[0]}, key: {files[1]}, producer: {{port: 0}}, consumer: {{port: 0}}}}\n"
    node = start_node(configuration=tls + CONFIGURATION)
    kinds = ATTACKS[name]
    if not READ_BY_NONE.isdisjoint(kinds):
        with Producer(node.ready["producer"], resends=200, resend_pause_ms=100, timeout_ms=30_000) as producer:
            for _ in range(BULK):
                producer.send("bulk", bytes(BULK_BYTES))
    quiet = p99_ms(node)
    before, cpu = own_bytes(node), cpu_seconds(node)
    with Watch(node) as watch, attack(node, *kinds) as seen:
        attacked = p99_ms(node)
        ends = time.monotonic() + ATTACK_SECONDS
        while time.monotonic() < ends:
            attacked = max(attacked, p99_ms(node))
        cpu = cpu_seconds(node) - cpu
        if not READ_BY_NONE.isdisjoint(kinds):
            until(lambda: 'reason="slow_reader"' in metrics(node), "a peer that reads nothing is closed")
    grown = watch.own - before
    print(
        f"\n{name} | account {watch.account // MIB} MiB | process +{grown // MIB} MiB | "
        f"p99 quiet {quiet:.1f} ms | under attack {attacked:.1f} ms | CPU {cpu:.1f} s | "
        f"{watch.pressed} of {watch.looks} looks above 6/8 | {seen}"
    )
    assert node.process.poll() is None
    assert watch.account <= CEILING
    assert grown <= watch.account + UNCOUNTED
    if "partial" in kinds:
        assert watch.pressed <= watch.looks / 4
    if "name" in kinds:
        assert cpu <= NAME_SECONDS * (seen["names"] + seen["name_opened"])


pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
