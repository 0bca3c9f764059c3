"""Chaos: node processes killed, stopped, added and removed in front of a Kafka that is killed and started again.

`python -m tests.kafka.chaos --seconds 600` (`make chaos`) prints what it does and, as its last line, what came of it;
it ends with 1 where something is wrong. `tests/kafka/test_chaos.py` runs a minute of it.

A plain producer sends numbered messages of some keys all the time, idempotent and until Kafka has them; a few are
almost as large as Kafka allows. Every node has two pull clients, which fail one message in fifty. The account
(`chaos_account`) writes the journal that the rules of `tests.histories` judge. The group has a second topic, which is
deleted, created again, cut off and given partitions meanwhile (`chaos_changing`). Timers, loops, cancels and
transactions wait on another one (`chaos_waiting`).
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any
from urllib.request import urlopen

from conf.sections.kafka import KafkaClusterConfig
from pyddmq import Consumer
from pyddmq.client.errors import ClientError
from tests.kafka import server
from tests.kafka.chaos_account import ChaosAccount, Committed, Verdict
from tests.kafka.chaos_changing import NAME, Changes, ChangesAccount
from tests.kafka.chaos_changing import said as said_of_changes
from tests.kafka.chaos_waiting import CLUSTER, NODE, WaitingLoad
from tests.kafka.chaos_waiting import NAME as WAITS
from tests.kafka.chaos_waiting import said as said_of_waiting
from tests.kafka.nodes import NodeProcess
from tests.kafka.topics import make_topic, plain_producer, stored_records
from tests.patient import until
from tests.tried import tried
from upstream.kafka.all_groups import CommittedPosition
from upstream.kafka.commits.metadata import decode
from upstream.kafka.link import KafkaFailure, KafkaPartition
from upstream.kafka_client.all_groups_process import SurveyProcess

PARTITIONS, KEYS = 12, 120
SESSION_SECONDS = 6.0
NEAR_SECONDS = 1.0
"""Of D52's 100 ms and a round trip, what is left to a machine with other work."""
TIMEOUT_SECONDS = 5.0
"""Of deliveries, as `nodes` has it."""
NODES = (2, 4)
PER_SECOND = 150
LOOK_SECONDS = 0.1
GROUP, TOPIC = "riders", "permits"
FAULTS = (
    "kill",
    "pause",
    "add",
    "remove",
    "restart_kafka",
    "pause_kafka",
    "create_topic_again",
    "delete_records",
    "add_partitions",
    "fence_producer",
)
UNDER_WAY = ("publishes", "deliveries", "waits", "halves", "changes")
"""All the time."""
FENCINGS, FENCED_SECONDS = 20, 3.0
BROKEN = "kafka_producer_broken"
STANDS = "although the cluster responds"
PAUSE_KAFKA_SECONDS = 9.0
BIG_SHARE, BIG_BYTES = 0.002, (900_000, 990_000)
"""librdkafka takes 1,000,000 bytes, and Kafka a batch of 1,048,588."""


class Sender:
    """Sends until it is stopped."""

    def __init__(self, address: str, topic: str, account: ChaosAccount, drawn: Random) -> None:
        settings = {
            "enable.idempotence": True,
            "message.timeout.ms": 0,
            "reconnect.backoff.max.ms": 500,
            "log_level": 0,
        }
        self._producer = plain_producer(address, **settings)
        self._topic = topic
        self._account = account
        self._drawn = drawn
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Send nothing more, and wait until Kafka has all."""
        self._over.set()
        self._thread.join()
        until(lambda: not self._producer.flush(1), "Kafka to have all that was sent")

    def _run(self) -> None:
        while not self._over.wait(0.05):
            for _ in range(round(PER_SECOND * 0.05)):
                key = f"k{self._drawn.randrange(KEYS)}"
                number = self._account.sent(key)
                value = f"{key} {number}".encode()
                if self._drawn.random() < BIG_SHARE:
                    value += b" " * self._drawn.randrange(*BIG_BYTES)
                self._produce(key, value, self._heard((key, number)))
            self._producer.poll(0)

    def _produce(self, key: str, value: bytes, heard: Callable[[Any, Any], None]) -> None:
        while True:
            try:
                self._producer.produce(self._topic, key=key.encode(), value=value, on_delivery=heard)
                return
            except BufferError:
                # Kafka is away for long.
                self._producer.poll(0.1)

    def _heard(self, place: tuple[str, int]) -> Callable[[Any, Any], None]:
        def heard(error: Any, message: Any) -> None:
            if error is None:
                self._account.acknowledged(place, message.partition(), message.offset())

        return heard


class Client:
    """Pulls from one node, and answers each batch by a call of its own; begins again when the node is away."""

    def __init__(
        self, node: NodeProcess, account: ChaosAccount, changes: ChangesAccount, drawn: Random, who: str
    ) -> None:
        self._node, self._who = node, who
        self._account = account
        self._changes = changes
        self._drawn = drawn
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End; `join` waits."""
        self._over.set()

    def join(self) -> None:
        """Wait for the end."""
        self._thread.join(60)

    def _run(self) -> None:
        while not self._over.is_set():
            try:
                with Consumer(self._node.consumers, GROUP, batch_size=16, linger_ms=200, timeout_ms=20_000) as consumer:
                    while not self._over.is_set():
                        self._turn(consumer)
            except (ClientError, OSError):
                self._over.wait(0.2)

    def _turn(self, consumer: Consumer) -> None:
        asked, name, done = time.monotonic(), self._node.name, []
        for message in consumer.pull():
            key, number = message.body.decode().split()
            if message.topic == NAME:
                self._take_changing(consumer, message, int(number))
                continue
            place = (key, int(number))
            partition = int(message.qid.rpartition("_")[2])
            self._account.take(place, name, partition, asked, time.monotonic(), message.offset, self._who)
            success = self._drawn.random() > 0.02
            self._account.done(place, name, time.monotonic(), success=success, who=self._who)
            if success:
                consumer.ack(message)
                done.append(place)
            else:
                consumer.fail(message, "not yet")
        if consumer.flush():
            self._account.answered(done, name, time.monotonic())

    def _take_changing(self, consumer: Consumer, message: Any, number: int) -> None:
        self._changes.take(number, time.monotonic())
        if self._drawn.random() > 0.02:
            self._changes.done(number, time.monotonic())
            consumer.ack(message)
        else:
            consumer.fail(message, "not yet")


class Looker:
    """Asks the coordinator who has which partition."""

    def __init__(self, address: str, account: ChaosAccount) -> None:
        config = KafkaClusterConfig.model_validate({"bootstrapServers": address})
        self._survey = SurveyProcess("chaos", config, client_id="chaos")
        self._account = account
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End."""
        self._over.set()
        self._thread.join()
        self._survey.close()

    def _run(self) -> None:
        while not self._over.wait(LOOK_SECONDS):
            try:
                group = self._survey.groups([GROUP]).get(GROUP)
            except KafkaFailure:
                continue  # Kafka is away, or busy.
            if group is not None:
                owners = {
                    place.partition: who[0].removeprefix("pyddmq-")
                    for place, who in group.members.items()
                    if place.topic == TOPIC
                }
                committed = {
                    place.partition: _said(each) for place, each in group.committed.items() if place.topic == TOPIC
                }
                self._account.looked(time.monotonic(), owners, committed, is_stable=group.is_stable)


def _said(standing: CommittedPosition) -> Committed:
    return standing.offset, decode(standing.metadata, standing.offset).ranges


class Chaos:
    """One run, in a folder."""

    def __init__(
        self,
        folder: Path,
        jars: Path,
        seed: int,
        reported: Callable[[str], None],
        *,
        chosen: Sequence[str] = FAULTS,
        protocol: str = "classic",
        near_seconds: float = NEAR_SECONDS,
    ) -> None:
        self._folder = folder
        self._chosen = chosen
        self._protocol = protocol
        self._drawn = Random(seed)
        self._reported = reported
        self._kafka = server.KafkaServer(folder / "kafka", jars)
        self._account = ChaosAccount(
            GROUP, TOPIC, near_seconds=near_seconds, session_seconds=SESSION_SECONDS, timeout_seconds=TIMEOUT_SECONDS
        )
        self._nodes: list[NodeProcess] = []
        self._clients: dict[str, list[Client]] = {}
        self._still: list[NodeProcess] = []
        self._changes: Changes | None = None
        self._waits: WaitingLoad | None = None
        self._names = 0
        self.faults: dict[str, int] = {}

    @property
    def changes(self) -> Changes:
        """The topic that changes; there is one once the run has begun."""
        assert self._changes is not None
        return self._changes

    @property
    def waits(self) -> WaitingLoad:
        """What waits; there is something once the run has begun."""
        assert self._waits is not None
        return self._waits

    @property
    def _producers(self) -> list[str]:
        """Producer ports of the nodes that run."""
        return [each.producers for each in self._nodes if each not in self._still]

    def run(self, seconds: float) -> Verdict:
        """Put faults in for so long, and each once at least; then let all come to its end."""
        self._kafka.start()
        make_topic(self._kafka.address, TOPIC, PARTITIONS, {})
        self._changes = Changes(self._kafka.address, self._drawn, lambda: self._producers)
        self._waits = WaitingLoad(self._kafka.address, self._drawn, lambda: self._producers)
        looker = sender = None
        try:
            for _ in range(NODES[0]):
                self._add()
            looker = Looker(self._kafka.address, self._account)
            sender = Sender(self._kafka.address, TOPIC, self._account, self._drawn)
            until(lambda: self._account.finished > 100, "the nodes are at work")
            end = time.monotonic() + seconds
            faults = self._order()
            while time.monotonic() < end or len(self.faults) < len(self._chosen):
                self._look_for_the_dead()
                name = next(faults)
                self._reported(f"{name}, {self._account.finished:,} done")
                self.faults[name] = self.faults.get(name, 0) + 1
                tried("chaos", name, operations=UNDER_WAY, states=[self._protocol])
                getattr(self, f"_{name}")()
                time.sleep(self._drawn.uniform(1, 4))
            sender.stop()
            self.changes.stop()
            self.waits.stop()
            until(lambda: not self._account.left, "all is answered")
            try:
                until(lambda: not self.changes.account.left, "all that was not deleted is answered")
                until(lambda: not self.waits.account.left, "all that waits is visible")
            except AssertionError:
                self._show_state()
            self._look_for_the_dead()
            committed = self._committed()
            looker.stop()
            return self._judge(committed)
        finally:
            self._waits.end()
            for clients in self._clients.values():
                for client in clients:
                    client.stop()
            for node in self._nodes:
                node.kill()
            self._kafka.kill()

    def _show_state(self) -> None:
        """Keep what nodes say of groups, queues and messages that do not move, beside their logs."""
        for node in self._nodes:
            for name in ("groups", "groups/stuck", "offsets", "attention", "stats"):
                with suppress(OSError), urlopen(f"http://{node.admin}/api/{name}", timeout=30) as answer:
                    path = self._folder / f"{node.name}-{name.replace('/', '-')}.json"
                    path.write_bytes(answer.read())

    def _look_for_the_dead(self) -> None:
        """Note nodes that nobody has ended, and put others in their places."""
        for node in [each for each in self._nodes if each.process.poll() is not None]:
            self._account.ended(node.name, f"{node.process.returncode}, {node.log()[-500:]}")
            self._nodes.remove(node)
            self._end_clients(node)
        self._refill()

    def _order(self) -> Any:
        """Every fault once, in any order, again and again."""
        while True:
            names = list(self._chosen)
            self._drawn.shuffle(names)
            yield from names

    def _add(self) -> None:
        if len(self._nodes) >= NODES[1]:
            return
        self._names += 1
        name, address = f"n{self._names}", self._kafka.address
        node = NodeProcess(
            self._folder, name, address=address, topic=TOPIC, group=GROUP, protocol=self._protocol, beside=[NAME],
            unread=[WAITS], node=NODE, cluster=CLUSTER,
        )  # fmt: skip
        self._nodes.append(node)
        self._clients[node.name] = [
            Client(node, self._account, self.changes.account, self._drawn, who) for who in ("a", "b")
        ]

    def _take(self) -> NodeProcess:
        return self._nodes.pop(self._drawn.randrange(len(self._nodes)))

    def _kill(self) -> None:
        node = self._take()
        self._account.away(node.name, time.monotonic())
        node.kill()
        self._end_clients(node)
        self._refill()

    def _remove(self) -> None:
        node = self._take()
        self._account.stopped(node.name, time.monotonic())
        node.stop()
        if node.process.returncode:
            raise AssertionError(f"a node that was stopped ended with {node.process.returncode}: {node.log()[-2000:]}")
        self._end_clients(node)
        self._refill()

    def _pause(self) -> None:
        """Have a node stand still for longer than its session, while others go on."""
        node = self._drawn.choice(self._nodes)
        if len(self._nodes) < 2:
            return
        outage = self._account.away(node.name, time.monotonic())
        self._still.append(node)
        node.pause()
        time.sleep(SESSION_SECONDS + self._drawn.uniform(2, 4))
        outage.ended = time.monotonic()
        node.wake()
        self._still.remove(node)

    def _restart_kafka(self) -> None:
        outage = self._account.away("", time.monotonic())
        self._kafka.kill()
        time.sleep(self._drawn.uniform(0, 3))
        self._kafka.start()
        outage.ended = time.monotonic()
        self._await_progress("nodes go on after Kafka came back")

    def _pause_kafka(self) -> None:
        """Have Kafka stand still with all connections open, for longer than sessions of members."""
        outage = self._account.away("", time.monotonic())
        self._kafka.pause()
        time.sleep(PAUSE_KAFKA_SECONDS)
        self._kafka.wake()
        outage.ended = time.monotonic()
        self._await_progress("nodes go on after Kafka stood still")

    def _await_progress(self, what: str) -> None:
        done = self._account.finished
        try:
            until(lambda: self._account.finished > done + 50, what)
        except AssertionError:
            # A broker that was killed may never answer for groups again, though it takes records: its load of
            # __consumer_offsets crossed a change of the leader's epoch. Only a restart of it helps.
            self._kafka.dump_threads()
            if not self._finds(STANDS):
                raise
            self._reported("Kafka answers for no group, as nodes say: it is restarted")
            outage = self._account.away("", time.monotonic())
            self._kafka.kill()
            self._kafka.start()
            outage.ended = time.monotonic()
            until(lambda: self._account.finished > done + 50, what)

    def _create_topic_again(self) -> None:
        self.changes.create_again()

    def _delete_records(self) -> None:
        self.changes.delete_records()

    def _add_partitions(self) -> None:
        self.changes.add_partitions()

    def _fence_producer(self) -> None:
        """Take the ids of nodes' producers away until one has failed: it is replaced, the finding comes and goes."""
        for _ in range(FENCINGS):
            self.changes.fence_producer(self._folder / "kafka")
            time.sleep(FENCED_SECONDS)
            if self._finds(BROKEN):
                break
        else:
            raise AssertionError("no node says that its producer has failed")
        until(lambda: not self._finds(BROKEN), "nodes to have replaced their producers")

    def _finds(self, finding: str) -> bool:
        """Whether a node has a finding of this name, or with these words."""
        answers = []
        for node in self._nodes:
            with urlopen(f"http://{node.admin}/api/attention", timeout=30) as answer:
                answers.append(answer.read().decode())
        return any(finding in each for each in answers)

    def _refill(self) -> None:
        while len(self._nodes) < NODES[0]:
            self._add()

    def _end_clients(self, node: NodeProcess) -> None:
        for client in self._clients.pop(node.name):
            client.stop()

    def _committed(self) -> bool:
        """Whether Kafka has, some time later, all of it as committed."""
        config = KafkaClusterConfig.model_validate({"bootstrapServers": self._kafka.address})
        survey = SurveyProcess("chaos", config, client_id="chaos")
        places = [KafkaPartition(TOPIC, each) for each in range(PARTITIONS)]

        def all_of_it() -> bool:
            group = survey.groups([GROUP]).get(GROUP)
            ends = survey.ends(places)
            return group is not None and all(
                end == 0 or (place in group.committed and group.committed[place].offset == end)
                for place, (_, end) in ends.items()
            )

        until(all_of_it, "what was answered to be committed")
        survey.close()
        return True

    def _judge(self, committed: bool) -> Verdict:
        assert committed
        for partition, offset, value in stored_records(self._kafka.address, TOPIC, PARTITIONS):
            key, number = value.split()
            self._account.stored((key.decode(), int(number)), partition, offset)
        verdict = self._account.verdict()
        self._account.journal.save(self._folder / "history.jsonl")
        self.waits.account.journal.save(self._folder / "waits.jsonl")
        return verdict


def said(verdict: Verdict, faults: dict[str, int]) -> str:
    """One line for people."""
    did = ", ".join(f"{count} x {name}" for name, count in sorted(faults.items()))
    return (
        f"{verdict.sent:,} messages, {verdict.handed_out:,} hand-outs, {did}: {len(verdict.faults)} faults of the "
        f"history, {len(verdict.after_loss)} hand-outs after the loss of the partition ({verdict.looks:,} looks), "
        f"{verdict.again} answered and again, {len(verdict.ended)} nodes ended by themselves; answers were seen "
        f"committed after {verdict.commit_ms[0]} ms, 99 % after {verdict.commit_ms[1]} ms"
    )


def main() -> int:
    """Run as asked on the command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.kafka.chaos", description=__doc__)
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--faults", default=",".join(FAULTS), help="only these, with commas between them")
    parser.add_argument("--protocol", choices=("classic", "consumer"), default="classic", help="groupProtocol of nodes")
    parser.add_argument("--keep", type=Path, help="where files and logs of nodes and Kafka stay")
    asked = parser.parse_args()
    began = time.monotonic()

    def reported(text: str) -> None:
        print(f"{time.monotonic() - began:6.1f} s  {text}", flush=True)

    with tempfile.TemporaryDirectory(prefix="pyddmq-chaos-") as folder:
        chosen = tuple(asked.faults.split(","))
        where = asked.keep or Path(folder)
        chaos = Chaos(where, server.JARS.fetch(), asked.seed, reported, chosen=chosen, protocol=asked.protocol)
        verdict = chaos.run(asked.seconds)
        changes = chaos.changes.account.verdict()
        waits = chaos.waits.account.verdict()
    found = (verdict.faults, verdict.after_loss, verdict.ended)
    for each in (*found, changes.faults, waits.faults, waits.lost, waits.wrong):
        for text in each[:10]:
            print(text)
    print(f"seed {asked.seed}, {asked.seconds:.0f} s: {said(verdict, chaos.faults)}")
    print(said_of_changes(changes))
    print(said_of_waiting(waits))
    return 0 if verdict.passed and changes.passed and waits.passed else 1


if __name__ == "__main__":
    sys.exit(main())
