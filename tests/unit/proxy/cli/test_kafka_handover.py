"""`pyddmq store handover --to kafka` over a Kafka in memory: what is copied, what stays, and kills at every step."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest

from broker.errors import StoreError
from broker.features import ALL
from broker.format.properties import encode_properties
from broker.log.put import Put, owned
from broker.options import StoreOptions
from broker.runtime.bundle import runtime_of
from broker.runtime.disk import RealDisk
from broker.runtime.metrics import Metrics
from broker.runtime.rate_limited_log import RateLimitedLog
from broker.runtime.steps import run_now
from broker.scheduled.cancelling import CancelEffect
from broker.scheduled.delay.delays import Delays
from broker.scheduled.recurring.loops import Loops
from broker.scheduled.recurring.occurrence import LOOP, Occurrence
from broker.scheduled.timer.timers import Timers
from broker.store import Store
from broker.transaction.settings import CheckSettings
from broker.transaction.transactions import Transactions
from conf import Config
from proxy.cli.app import run
from proxy.cli.errors import CliError
from proxy.cli.store.handover import Point
from proxy.cli.store.kafka_handover import KafkaHandover
from proxy.cli.store.stopped_store import opened
from proxy.process.exit_codes import ExitCode
from pyddmq.testing import ManualClock, ManualScheduler, VirtualLoop
from tests.fakes.kafka.client import SimClient
from tests.integration.store_tools import HOST
from tests.waiting_world import START_MS, WaitingWorld
from upstream.embedded.queues import EmbeddedQueues, offsets_of
from upstream.kafka.link import KafkaClient
from upstream.kafka.waiting.handover import HandoverProgress
from upstream.kafka.waiting.records import Identity
from upstream.progress.progress import Progress

NOW_S = START_MS // 1000
UUID = "14f22520-ad72-11e7-91be-6ee54da579e3"
LOOPED = Occurrence(NOW_S + 20, LOOP, NOW_S + 9999, 3, 0, 10, 0, UUID)
CONFIG: dict[str, Any] = {
    "kafka": {"main": {"bootstrapServers": "kafka:9092", "waiting": {"partitions": 3}}},
    "topics": {"orders": {"brokerCluster": "main"}, "events": {"brokerCluster": "main"}},
}


class Killed(Exception):
    """The process of a handover ends."""


def make_store(data: Path, timers: int = 12) -> None:
    """A store with timers, one of them cancelled, a level, a loop and two halves."""
    clock = ManualClock(START_MS)
    store = Store.open(
        str(data),
        options=StoreOptions(segment_bytes=1 << 16, queue_file_units=10),
        features=ALL,
        disk=RealDisk(),
        clock=clock,
        random=Random(3),
        metrics=Metrics(),
    )
    for name in ("orders", "events", "local"):
        store.create_topic(name, 2)
    seams: dict[str, Any] = {
        "disk": RealDisk(),
        "clock": clock,
        "scheduler": ManualScheduler(clock),
        "metrics": Metrics(),
        "limited_log": RateLimitedLog(clock),
    }
    put = Put(store.topics["orders"], 1, b"loop", b"")
    loop = Loops(store, runtime_of(RealDisk(), clock)).first(owned(put, "ann"), LOOPED)
    store.append([loop], born_ms=1, born_host=HOST)
    for number in range(timers):
        due_ms = START_MS + 5_000 + number * 1000
        store.put("orders", b"timer%d" % number, key="k", tags="red", deliver_at_ms=due_ms)
    store.put("local", b"local", deliver_at_ms=START_MS + 5_000)
    key = store.put("orders", b"cancelled", deliver_at_ms=START_MS + 9_000).unique_key
    opened_timers = run_now(Timers.opening(store, **seams))
    opened_timers.start()
    seams["scheduler"].run_until_idle()
    assert opened_timers.cancel("orders", key.decode()) is CancelEffect.CANCELLED
    opened_timers.close()
    store.put("events", b"level", delay_level=3)
    runtime = runtime_of(RealDisk(), clock, metrics=Metrics(), scheduler=ManualScheduler(clock))
    progress = run_now(Progress.opening(str(data), queues=EmbeddedQueues(store), runtime=runtime))
    checks = CheckSettings(timeout_ms=1, interval_ms=1, checks_max=1)
    transactions = run_now(Transactions.opening(store, offsets=offsets_of(progress), settings=checks, **seams))
    for body, delay_ms in ((b"half", 0), (b"late half", 30_000)):
        given = Put(store.topics["orders"], 0, body, encode_properties({"KEYS": "h"}))
        half = transactions.half(given, group="shop", delay_ms=delay_ms)
        store.append([half], born_ms=1, born_host=HOST)
    store.flush()
    run_now(Delays.opening(store, **seams)).close()
    progress.close()
    store.close()


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Such a store."""
    make_store(tmp_path)
    return tmp_path


class Ground:
    """A store, a Kafka in memory with nodes, and runs of the command between them."""

    def __init__(self, data: Path, nodes: int = 1, config: dict[str, Any] | None = None) -> None:
        self.data = data
        self.loop = VirtualLoop()
        self.world = WaitingWorld(loop=self.loop, nodes=nodes)
        self.config = Config.model_validate(CONFIG if config is None else config)
        self.clients: list[SimClient] = []
        self.reported: list[int] = []

    def client(self, cluster: str) -> KafkaClient:
        """A client of the command."""
        assert cluster == "main"
        self.clients.append(SimClient(self.world.kafka))
        return self.clients[-1]

    def hand_over(self, *, dry_run: bool = False, accept: bool = False, turns: int = -1) -> dict[str, Point]:
        """Run the command, and return its points by kind; Killed: after so many turns."""
        with opened(self.data) as found:
            runtime = runtime_of(
                found.runtime.disk,
                self.world.clock,
                scheduler=found.runtime.scheduler,
                random=Random(len(self.clients)),
            )
            handover = KafkaHandover(replace(found, runtime=runtime), self.config, self.client, self.reported.append)
            task = self.loop.create_task(handover.run(dry_run=dry_run, accept=accept))
            end = self.loop.turns + turns
            self.loop.run(lambda: task.done() or self.loop.turns == end, seconds=600)
            if not task.done():
                self.clients[-1].kill()
                task.get_coro().close()
                task._log_destroy_pending = False  # type: ignore[attr-defined]
                raise Killed
        return {each.kind: each for each in task.result()}


def counts(points: dict[str, Point]) -> dict[str, int]:
    """How many of each kind."""
    return {kind: point.count for kind, point in points.items()}


def test_what_waits_is_copied_and_delivered_once(data: Path) -> None:
    """Timers, levels and loops come once, and not early; halves by their commits; a cancelled one does not come."""
    ground = Ground(data)
    assert counts(ground.hand_over(dry_run=True)) == {"to_copy": 16, "not_in_kafka": 1}
    assert not list((data / "pyddmq").glob("handover*")), "a dry run writes nothing"
    points = ground.hand_over()
    assert counts(points) == {"copied": 16, "not_in_kafka": 1}
    assert points["copied"].names == [
        "events (level): 1", "orders (half): 2", "orders (loop): 1", "orders (timer): 12",
    ]  # fmt: skip
    assert ground.reported == [16]
    world, node = ground.world, ground.world.nodes[0]
    world.settle()
    world.run(4)
    ids = {each.message.body: each.identity.id for each in node.waiting.fetch_checks("shop", 10, "")}
    assert ids.keys() == {b"half", b"late half"}
    committed = [node.decide(ids[body], "commit") for body in (b"half", b"late half")]
    world.run(26)
    assert committed == [["ok"], ["ok"]]
    assert "late half" not in world.delivered(), "its delay begins with its commit"
    world.run(30)
    found = world.delivered()
    assert {name: len(moments) for name, moments in found.items()} == {
        **{f"timer{number}": 1 for number in range(12)}, "loop": 3, "half": 1, "late half": 1,
    }  # fmt: skip
    assert all(found[f"timer{number}"][0] >= START_MS + 5_000 + number * 1000 for number in range(12))
    assert [moment >= (LOOPED.at_s + 10 * at) * 1000 for at, moment in enumerate(found["loop"])] == [True] * 3
    assert len(world.delivered("events")["level"]) == 1
    assert counts(ground.hand_over()) == {"already_there": 16, "not_in_kafka": 1}


def test_message_has_the_keys_tags_and_names_that_its_node_would_give_it(data: Path) -> None:
    """So cancels by id, and a client's resend, find it; the owner of the store's message is its principal."""
    ground = Ground(data, nodes=0)
    ground.hand_over()
    ground.world.start("n")
    ground.world.settle()
    node = ground.world.nodes[0]
    outcome: list[str] = []
    node.waiting.requests.ask(Identity("orders", "ann", LOOPED.id), 0, 5.0, outcome.append)
    ground.world.run(20)
    assert outcome == ["cancelled"]
    assert "loop" not in ground.world.delivered()
    [record] = [
        each
        for place in ground.world.kafka.places()
        for each in ground.world.kafka.partition(place).read(0, 1000)
        if place.topic == "orders" and each.value == b"timer0"
    ]
    assert record.key == b"k"
    assert dict(record.headers)["TAGS"] == b"red"
    assert {name for name, _ in record.headers} == {"TAGS", "UNIQ_KEY"}


def _all_delivered(ground: Ground) -> None:
    world = ground.world
    world.settle()
    world.run(60)
    found = {name: len(moments) for name, moments in world.delivered().items()}
    assert found == {**{f"timer{number}": 1 for number in range(12)}, "loop": 3}
    assert len(world.delivered("events")["level"]) == 1
    waiting = world.nodes[0].waiting
    assert sum(owner.cache.undecided.total() for owner in waiting.owners.values()) == 2


def test_kill_at_any_turn_costs_and_doubles_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each run is killed some turns later than the one before, the owners deliver meanwhile; the last one ends."""
    monkeypatch.setattr("upstream.kafka.waiting.handover.BATCH_MESSAGES", 5)
    make_store(tmp_path)
    ends = 0
    for step in (5, 17):
        ground = Ground(tmp_path)
        (tmp_path / "pyddmq" / "handover-main.jsonl").unlink(missing_ok=True)
        turns, runs = 1, 0
        while True:
            try:
                points = ground.hand_over(turns=turns)
                break
            except Killed:
                turns, runs = turns + step, runs + 1
        assert counts(points)["not_in_kafka"] == 1
        assert sum(counts(points).get(kind, 0) for kind in ("copied", "already_there")) == 16
        _all_delivered(ground)
        ends += runs
    assert ends > 20, "it was killed all the way"


def test_kill_at_each_write_of_the_progress_doubles_nothing(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The line that was being written is lost in part; the next run goes on behind it."""
    monkeypatch.setattr("upstream.kafka.waiting.handover.BATCH_MESSAGES", 5)
    ground = Ground(data)
    written = HandoverProgress._append
    for cut in range(1, 12):
        left = [cut]

        def torn(self: Any, line: dict[str, Any], left: list[int] = left) -> None:
            left[0] -= 1
            if left[0] == 0:
                end = self._end
                written(self, line)
                self._file.truncate(end + (self._end - end) // 2)
                raise Killed
            written(self, line)

        monkeypatch.setattr(HandoverProgress, "_append", torn)
        try:
            ground.hand_over()
        except Killed:
            continue
    monkeypatch.setattr(HandoverProgress, "_append", written)
    ground.hand_over()
    _all_delivered(ground)


def test_message_of_unknown_outcome_is_refused_once_its_owner_has_forgotten(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After `rememberSec` a message that was begun may have been delivered and forgotten: the operator looks."""
    ground = Ground(data)
    progress = data / "pyddmq" / "handover-main.jsonl"
    begin = HandoverProgress.note_begun

    def killed(self: HandoverProgress, marks: Sequence[bytes], now_ms: int) -> None:
        begin(self, marks, now_ms)
        raise Killed

    monkeypatch.setattr(HandoverProgress, "note_begun", killed)
    with pytest.raises(Killed):
        ground.hand_over()
    monkeypatch.undo()
    assert b"copied" not in progress.read_bytes()
    times = re.sub(rb'"begun": \d+', b'"begun": %d' % (START_MS - 7 * 86_400_000), progress.read_bytes())
    progress.write_bytes(times)
    # As it was when nothing of the batch had been written, or all of it was delivered and forgotten.
    ground = Ground(data, nodes=0)
    points = ground.hand_over()
    assert counts(points) == {"uncertain": 16, "not_in_kafka": 1}
    assert "send again" in points["uncertain"].advice


def refusal(ground: Ground) -> str:
    """Why nothing is copied at all."""
    with pytest.raises(CliError) as refused:
        ground.hand_over()
    assert not ground.world.log()
    return str(refused.value)


def test_refusals_say_what_to_do(data: Path) -> None:
    """Without waiting topics, in the configuration or in Kafka, nothing is copied."""
    ground = Ground(data, nodes=0)
    del ground.world.kafka.topics["__pyddmq_answers"]
    assert "kafka-topics.sh --bootstrap-server kafka:9092 --create" in refusal(ground)
    config = {**CONFIG, "kafka": {"main": {"bootstrapServers": "kafka:9092"}}}
    assert "add `waiting: {}` to kafka.main" in refusal(Ground(data, nodes=0, config=config))


def test_messages_that_cannot_be_copied_are_counted_first_and_stay(data: Path) -> None:
    """A missing topic, a horizon and a limit of size; with `accept` the others are copied."""
    ground = Ground(data, nodes=0)
    waiting = {"partitions": 3, "maxDelaySec": 10}
    ground.config = Config.model_validate(
        {**CONFIG, "kafka": {"main": {"bootstrapServers": "kafka:9092", "waiting": waiting}}}
    )
    del ground.world.kafka.topics["events"]
    points = ground.hand_over()
    assert counts(points) == {"to_copy": 7, "topic_missing": 1, "too_far": 8, "not_in_kafka": 1}
    assert points["topic_missing"].names == ["events (level): 1"]
    assert all(points[kind].needs_accept for kind in ("topic_missing", "too_far"))
    assert not ground.world.log(), "nothing is copied before it is accepted"
    assert counts(ground.hand_over(accept=True))["copied"] == 7
    ground.config = Config.model_validate(CONFIG)
    ground.world.kafka.partitions("events", 1)
    assert counts(ground.hand_over()) == {"copied": 9, "already_there": 7, "not_in_kafka": 1}
    ground = Ground(data, nodes=0)
    (data / "pyddmq" / "handover-main.jsonl").unlink()
    ground.world.kafka.settings["orders"] = {"max.message.bytes": "100"}
    assert counts(ground.hand_over())["too_large"] == 15


def test_client_that_sent_again_meanwhile_is_the_same_message(data: Path) -> None:
    """A resend of the loop that reached Kafka first is counted as there."""
    ground = Ground(data)
    ground.world.settle()
    ground.world.nodes[0].add(LOOPED.id, LOOPED.at_s * 1000, principal="ann", kind="loop", loop=LOOPED.id, body=b"loop")
    ground.world.run(1)
    assert counts(ground.hand_over()) == {"copied": 15, "already_there": 1, "not_in_kafka": 1}
    _all_delivered(ground)


def test_progress_of_another_topic_is_refused(data: Path) -> None:
    """It says nothing of this one."""
    ground = Ground(data, nodes=0)
    ground.hand_over()
    progress = data / "pyddmq" / "handover-main.jsonl"
    progress.write_bytes(progress.read_bytes().replace(b"sim/", b"other/"))
    with pytest.raises(StoreError, match="another waiting topic or cluster"):
        ground.hand_over()


def test_options_are_checked(data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The configuration is needed, and has to be one; a store in use is refused."""
    bad = tmp_path / "bad.yaml"
    bad.write_text("nodes: {}\n")
    good = tmp_path / "good.yaml"
    good.write_text("node: {}\n")
    to_kafka = ["store", "handover", str(data), "--to", "kafka"]
    assert run(to_kafka) == ExitCode.USAGE
    assert "--config FILE" in capsys.readouterr().err
    assert run([*to_kafka, "--config", str(bad)]) == ExitCode.CONFIG_INVALID
    assert run(["store", "handover", str(data), "--to", "rocketmq", "--dry-run"]) == ExitCode.USAGE
    assert run([*to_kafka, "--config", str(good), "--json"]) == ExitCode.OK
    assert '"kind": "not_in_kafka", "count": 17' in capsys.readouterr().out
    with opened(data):
        assert run([*to_kafka, "--config", str(good)]) == ExitCode.DATA_UNUSABLE


def test_copy_that_is_done_stays_done_when_its_owners_have_forgotten(data: Path) -> None:
    """What was delivered and forgotten since is copied: the next run writes nothing, and asks nothing."""
    ground = Ground(data)
    ground.hand_over()
    progress = data / "pyddmq" / "handover-main.jsonl"
    times = re.sub(rb'"begun": \d+', b'"begun": %d' % (START_MS - 7 * 86_400_000), progress.read_bytes())
    progress.write_bytes(times)
    ground = Ground(data, nodes=0)
    assert counts(ground.hand_over()) == {"already_there": 16, "not_in_kafka": 1}
