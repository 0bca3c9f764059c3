"""One campaign: a publisher, pauses of groups, a node, the jobs and exports, all killed at random while all run.

What must hold, over all kills:

- each message of topic `permits` is in topic `copies` exactly once (source and sink), and the group's lag is 0;
- the watch's files have each change of a verdict once: those that the same rules find in the node's journal;
- an export has each row of the journal exactly once.

The clock of a campaign is what was copied: kills come after so many more messages, drawn from the seed.
"""

from __future__ import annotations

import json
import random
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from broker.runtime.disk import RealDisk
from lag.blocks import BlockGap
from lag.export.place import ExportPlace
from lag.journal.columns import queue_sample
from lag.journal.files import Tier
from lag.journal.reader import JournalReader
from lag.rules.limits import LagLimits
from lag.samples import QueueKey
from lag.spark.sources.node import NodeClient, NodeFailed, NodeRefused
from lag.verdicts.changes import Verdicts
from lag.verdicts.windows import NodeWindows
from pyddmq import ClientError, OutgoingMessage
from tests.patient import PATIENCE_SECONDS, Producer, until
from tests.spark.kills.processes import BOTH, DRIVER, JVM, Killed, NodeOfKills, export, job

PAUSES_AT_ONCE: Final = 4
AHEAD_MAX: Final = 1_500
"""Messages that the publisher may be ahead of what was copied."""
QUEUES: Final = {"permits": 3, "copies": 2, "quiet": 1}
RECOVERING: Final = 503
"""Status of an answer: the node starts."""
NODE, EXPORT = "node", "export"


@dataclass
class Account:
    """What a campaign did and found."""

    kills: Counter[str] = field(default_factory=Counter)
    messages: int = 0
    copies: int = 0
    batches: int = 0
    changes: int = 0
    exports: int = 0
    rows: int = 0

    def line(self) -> str:
        """All of it, for people."""
        kills = ", ".join(f"{count} of {whom}" for whom, count in sorted(self.kills.items()))
        return (
            f"{sum(self.kills.values())} kills ({kills}); {self.messages} messages, {self.copies} copies in "
            f"{self.batches} batches; {self.changes} changes of verdicts; {self.exports} exports, {self.rows} rows"
        )


def settings(groups: Sequence[str]) -> dict[str, Any]:
    """Return the node's configuration: topics, groups for the jobs, and groups that are paused."""
    low: dict[str, Any] = {"actions": ["LowLevel"]}
    return {
        "node": {"brokerCluster": "c", "brokerName": "n", "segmentBytes": 1 << 20, "maxMessageBytes": 65_536},
        "lag": {"every": "1s"},
        "topics": {name: {"queues": count} for name, count in QUEUES.items()},
        "groups": [
            {"group": "spark", "topics": [{"topic": "permits", **low}]},
            {"group": "check", "topics": [{"topic": name, **low} for name in ("permits", "copies")]},
            *({"group": group, "topics": [{"topic": "quiet"}]} for group in groups),
        ],
    }  # fmt: skip


class Campaign:
    """One run.

    Args:
        folder: For all files.
        seed: Of the kills.
        kills: Who is killed, in turn; `node`, `export`, or of the jobs' process `driver`, `JVM`, `driver and JVM`.
        pauses: How many groups are paused.
        step: Messages that are copied between two kills, at most.
        apart: Whether the two jobs have processes of their own.
    """

    def __init__(
        self, folder: Path, *, seed: int, kills: Sequence[str], pauses: int, step: int, apart: bool = False
    ) -> None:
        self.account = Account()
        self._dice = random.Random(seed)
        self._kills = kills
        self._groups = [f"quiet-{number:03d}" for number in range(pauses)]
        self._step = step
        self._node = NodeOfKills(folder, settings(self._groups))
        producer, consumer, admin = (f"127.0.0.1:{port}" for port in self._node.ports)
        self._admin, self._producer, self._consumer = admin, producer, consumer
        self._journal = self._node.data / "pyddmq" / "lag"
        self._changes = folder / "changes"
        self._place = folder / "exported"
        self._checkpoint = folder / "copy"
        copy = {
            "producer": producer, "consumer": consumer, "checkpoint": str(self._checkpoint),
            "source": {"partitionMessages": "150", "maxOffsetsPerTrigger": "600"}, "sink": {"batchMessages": "20"},
        }  # fmt: skip
        words = ["--journal", str(self._journal), "--checkpoint", f"{folder}/watch", "--path", str(self._changes)]
        words += [
            "--format",
            "json",
            "--settled",
            "0",
            "--silence",
            "86400",
            "--every",
            "1",
        ]
        jobs: list[dict[str, Any]] = [{"copy": copy}, {"watch": words}] if apart else [{"copy": copy, "watch": words}]
        self._running: list[Killed] = []
        for number, given in enumerate(jobs):
            (folder / f"job-{number}").mkdir()
            self._running.append(job(folder / f"job-{number}", given))
        self._export = export(self._journal, self._place, folder)
        self._over = threading.Event()
        self._acknowledged: set[bytes] = set()
        self._broken: list[BaseException] = []

    def run(self) -> Account:
        """Run it to its end. Raises AssertionError: something was lost, or came twice."""
        threads = [threading.Thread(target=self._kept, args=(each,)) for each in (self._publish, self._pause)]
        try:
            assert self._node.start()
            for running in self._running:
                running.start()
            threads[0].start()
            # A pause is a change only for a group that was judged before; the first copy is later than the first round.
            self._wait_for(1)
            threads[1].start()
            for whom in self._kills:
                self._kill(whom)
            threads[1].join()
            self._over.set()
            threads[0].join()
            self._raise_broken()
            until(self._is_done, f"the jobs to end: {[each.said() for each in self._running]}")
            for each in self._running:
                each.kill()
            self._check()
        finally:
            self._over.set()
            for each in (*self._running, self._export):
                each.kill()
            self._node.close()
        return self.account

    # What goes on

    def _kept(self, function: Any) -> None:
        try:
            function()
        except BaseException as error:
            self._broken.append(error)
            self._over.set()

    def _raise_broken(self) -> None:
        """Raise what ended a thread, with where it came from."""
        if self._broken:
            raise AssertionError("a thread of the campaign ended") from self._broken[0]

    def _publish(self) -> None:
        """Send small batches, no further ahead than AHEAD_MAX; what was acknowledged is kept."""
        number, dice = 0, random.Random(1)
        while not self._over.is_set():
            if len(self._acknowledged) - self.account.copies > AHEAD_MAX:
                self._over.wait(0.05)
                continue
            bodies = [b"%d" % (number + each) for each in range(dice.randrange(1, 120))]
            number += len(bodies)
            try:
                with Producer(self._producer, timeout_ms=5_000) as producer:
                    producer.send_batch(
                        [OutgoingMessage(topic="permits", body=body, partition_id=int(body) % 3) for body in bodies]
                    )
            except ClientError:
                self._over.wait(0.1)
                continue
            self._acknowledged.update(bodies)

    def _pause(self) -> None:
        """Pause each group once, some with each kill; it goes on when the watch has said it."""
        waiting, paused = list(self._groups), dict[str, float]()
        while (waiting or paused) and not self._over.is_set():
            later = len(self._groups) * (len(self._kills) - self.account.kills.total()) // (len(self._kills) + 1)
            while len(waiting) > later and len(paused) < PAUSES_AT_ONCE:
                group = waiting.pop(0)
                self._post("pause", group)
                paused[group] = time.monotonic() + PATIENCE_SECONDS
            said = {each["group"] for each in written_changes(self._changes) if each["status"] == "PAUSED"}
            for group in [group for group in paused if group in said]:
                self._post("resume", group)
                del paused[group]
            late = [group for group, deadline in paused.items() if time.monotonic() > deadline]
            assert not late, f"the watch did not say that {late} are paused"
            self._over.wait(0.2)

    def _post(self, action: str, group: str) -> None:
        """Ask the admin port until it answers: a pause that is there already changes nothing."""
        request = urllib.request.Request(
            f"http://{self._admin}/api/groups/{action}", json.dumps({"group": group}).encode(),
            {"Content-Type": "application/json"},
        )  # fmt: skip
        while not self._over.is_set():
            try:
                with urllib.request.urlopen(request, timeout=10) as answer:
                    assert answer.status == 200
                    return
            except urllib.error.HTTPError as error:
                if error.code != RECOVERING:
                    raise
            except OSError:
                pass
            self._over.wait(0.1)

    def _copied(self) -> int:
        """How many copies there are; what is known of before while the node is away."""
        try:
            with NodeClient(self._consumer) as client:
                found = client.standings("check").get("copies", {})
        except (NodeFailed, NodeRefused):
            found = {}
        self.account.copies = max(self.account.copies, sum(each.end for each in found.values()))
        return self.account.copies

    def _wait_for(self, aim: int) -> None:
        """Wait for so many copies; not so often asked that the node has little else to do."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while self._copied() < aim and not self._broken:
            self._over.wait(0.05)
            assert time.monotonic() < deadline, f"waited in vain for {aim} copies"
        self._raise_broken()

    def _kill(self, whom: str) -> None:
        """Wait until some more was copied, kill, and start again."""
        aim = self._copied() + self._dice.randrange(1, self._step)
        if whom == EXPORT:
            self._export.start()
        self._wait_for(aim)
        if whom == NODE:
            self._node.kill()
            assert self._node.start()
        elif whom == EXPORT:
            # So soon that it is in the middle, or has not begun, or is over.
            threading.Event().wait(self._dice.uniform(0, 1.2))
            self._export.kill()
            self.account.exports += 1
        else:
            killed = self._dice.choice(self._running)
            assert killed.code is None, f"a job ended by itself: {killed.said()}"
            killed.kill(whom)
            killed.start()
        self.account.kills[whom] += 1

    # What must hold

    def _is_done(self) -> bool:
        """Whether all that can be copied is, and every pause has come and gone."""
        for each in self._running:
            assert each.code is None, f"a job ended by itself: {each.said()}"
        over = {each["group"] for each in written_changes(self._changes) if each.get("before") == "PAUSED"}
        try:
            with NodeClient(self._consumer) as client:
                found = client.standings("spark")["permits"]
        except (NodeFailed, NodeRefused):
            return False
        return all(each.end == each.committed for each in found.values()) and over >= set(self._groups)

    def _check(self) -> None:
        with NodeClient(self._consumer, patience=PATIENCE_SECONDS) as client:
            permits, copies = (all_of(client, topic) for topic in ("permits", "copies"))
            lags = [each.end - each.committed for each in client.standings("spark")["permits"].values()]
        self.account.messages, self.account.copies = len(permits), len(copies)
        self.account.batches = len(list((self._checkpoint / "commits").glob("[0-9]*")))
        assert self._acknowledged <= set(permits), "the node lost what it acknowledged"
        sent, stored = Counter(permits), Counter(copies)
        assert stored == sent, f"lost {sent - stored}, twice {stored - sent}"
        assert set(lags) == {0}, f"the group's lag is {lags}"
        self._node.stop()
        self._check_changes()
        self._check_export()

    def _check_changes(self) -> None:
        """Hold the files against the same rules over the journal; the watch was killed before the journal's end."""
        written = written_changes(self._changes)
        keys = [each["key"] for each in written]
        assert len(keys) == len(set(keys)), "a change was written twice"
        windows, verdicts, found = NodeWindows(), Verdicts(settled_ms=0), list[str]()
        last_ms = max((each["timeMs"] for each in written), default=0)
        for block in JournalReader(RealDisk(read_only=True), str(self._journal)).blocks():
            if isinstance(block, BlockGap) or block.tier is not Tier.RAW or block.time_ms > last_ms:
                continue
            cluster, node = block.head.cluster, block.head.node
            windows.round(
                (QueueKey(cluster=cluster, node=node, group=group, topic=topic, queue=queue), queue_sample(at, row))
                for (group, topic, queue), at, row in block.queues
            )
            for event in block.events:
                windows.note(event)
            judged = windows.judged(block.time_ms, lambda group, topic: LagLimits())
            found += [each.as_fields(cluster, node)["key"] for each in verdicts.take(judged, block.time_ms)]
        assert set(keys) == set(found), f"{set(keys) - set(found)} too many, {set(found) - set(keys)} not written"
        self.account.changes = len(keys)

    def _check_export(self) -> None:
        self._export.start()
        assert self._export.wait() == 0, self._export.said()
        place = ExportPlace(str(self._place))
        rows: Counter[tuple[Any, ...]] = Counter()
        names = ["cluster", "node", "group", "topic", "queue", "time_ms"]
        for live in place.live("queues"):
            table = place.read(live).select(names)
            rows.update(zip(*(table.column(name).to_pylist() for name in names), strict=True))
        recorded: Counter[tuple[Any, ...]] = Counter()
        for block in JournalReader(RealDisk(read_only=True), str(self._journal)).blocks():
            if not isinstance(block, BlockGap) and block.tier is Tier.RAW:
                for (group, topic, queue), time_ms, _ in block.queues:
                    recorded[block.head.cluster, block.head.node, group, topic, queue, time_ms] += 1
        assert rows == recorded, f"{len(rows - recorded)} rows too many, {len(recorded - rows)} are not there"
        assert set(recorded.values()) == {1}
        self.account.rows = len(rows)


def written_changes(folder: Path) -> list[dict[str, Any]]:
    """Return the changes in the files that Spark's log of its sink has; others are of a batch that did not end."""
    logs = sorted(folder.glob("_spark_metadata/[0-9]*"), key=lambda log: int(log.stem))
    # A compact log has all that is before it, which Spark removes when it is ten minutes old.
    first = max((at for at, log in enumerate(logs) if log.suffix == ".compact"), default=0)
    files = set()
    for log in logs[first:]:
        for line in log.read_text().splitlines()[1:]:
            entry = json.loads(line)
            files.add(Path(urllib.parse.urlsplit(entry["path"]).path))
    return [json.loads(line) for file in sorted(files) for line in file.read_text().splitlines()]


def all_of(client: NodeClient, topic: str) -> list[bytes]:
    """Return the bodies of all messages of a topic."""
    found = []
    for qid, standing in client.standings("check")[topic].items():
        at = standing.start
        while at < standing.end:
            fetched = client.fetch("check", topic, qid, at, 10_000)
            found += [message[2] for message in fetched.messages]
            at = max(at, fetched.next_offset)
    return found


__all__ = ["BOTH", "DRIVER", "EXPORT", "JVM", "NODE", "Account", "Campaign"]
