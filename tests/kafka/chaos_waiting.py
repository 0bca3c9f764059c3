"""What waits in a chaos run: timers, delays, loops, their cancels, and transactions on a topic that does not change.

Calls go to any node that runs. Every add, cancel and decision that is not answered is sent again, to any node; a timer
and a half are not, since a second one would be another message. A consumer of Kafka's own, read committed, sees what
comes. The waiting topic is compacted all the time, and keeps its tombstones for some seconds only. Timers and
transactions are in a journal that the rules of `tests.histories` judge. Judged here, which they do not know:

- *lost*: a loop of which an occurrence never came.
- *wrong*: a timer that is early by its record's timestamp; a loop that is early, out of order, came after its cancel
  was answered, or was answered otherwise than before.
"""

from __future__ import annotations

import socket
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from random import Random
from typing import Any

from confluent_kafka import Consumer as KafkaConsumer

from broker.scheduled.recurring.occurrence import LOOP, ONCE, Occurrence
from tests.histories.journal import Journal
from tests.histories.rules import judge
from tests.kafka.topics import make_topic
from tests.simulation.facts import PromiseBroken
from tests.simulation.halves import COMMIT, GROUP, ROLLBACK, UNKNOWN, HalfAccount
from tests.simulation.loops import UNKNOWN as CANCEL_UNKNOWN
from tests.simulation.loops import Came, LoopAccount, walk
from tests.simulation.wire import Frames, producer_codec, producer_idl
from upstream.kafka.waiting.topics import ANSWER_SETTINGS, TOPIC_SETTINGS

NAME, WAITING, ANSWERS = "waits", "__pyddmq_waiting", "__pyddmq_answers"
PARTITIONS, WAITING_PARTITIONS = 3, 4
COMPACTED = {
    "segment.bytes": "1048576", "segment.ms": "5000", "min.compaction.lag.ms": "0", "min.cleanable.dirty.ratio": "0.01",
    "delete.retention.ms": "10000",
}  # fmt: skip
UNDECIDED_MAX = 100
"""Each is checked every three seconds, to the end."""
NODE = "transactionTimeOut: 1000, transactionCheckInterval: 3000, transactionCheckMax: 1000000"
CLUSTER = f"waiting: {{partitions: {WAITING_PARTITIONS}}}"
PAUSE_SECONDS, CALL_SECONDS, CALL_MS = 0.05, 15.0, 4_000
LONGEST_MS = 12_000
ADDS_MAX = 20


@dataclass(slots=True)
class WaitingVerdict:
    """What came of it."""

    timers: int = 0
    loops: int = 0
    occurrences: int = 0
    cancels: Counter[int] = field(default_factory=Counter)
    halves: int = 0
    committed: int = 0
    again: int = 0
    faults: list[str] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)

    @property
    def passed(self) -> bool:
        """Whether nothing is wrong."""
        return not (self.faults or self.lost or self.wrong)


class WaitingAccount:
    """What was asked, answered and seen; called by many threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._due: dict[str, int] = {}
        self._acked: set[str] = set()
        self._seen: dict[str, list[int]] = defaultdict(list)
        self.journal = Journal()
        self._came: dict[str, list[Came]] = defaultdict(list)
        self._wrong: list[str] = []
        self.loops: dict[str, LoopAccount] = {}
        self.halves = HalfAccount()
        self.cancels: Counter[int] = Counter()
        self.again = 0

    def asks_timer(self, name: str, due_ms: int) -> None:
        """Note a timer that is about to be sent."""
        with self._lock:
            self._due[name] = due_ms
            fields: dict[str, Any] = {"who": "sender", "topic": NAME, "keys": {}, "due": ["at", due_ms]}
            self.journal.add("send", time.monotonic(), id=name, **fields)

    def stored_timer(self, name: str) -> None:
        """Note its acknowledgement."""
        with self._lock:
            self._acked.add(name)
            self.journal.add("sent", time.monotonic(), id=name, result="stored", place=None)

    def cancelled(self, account: LoopAccount, outcome: int, wall_ms: int) -> None:
        """Note the answer to a cancel."""
        with self._lock:
            self.cancels[outcome] += 1
            self._keep(lambda: account.answered(outcome, None, wall_ms))

    def decides(self, name: str, state: int) -> int:
        """Note a decision that is about to be sent; return its number."""
        with self._lock:
            return self.halves.asks(name, state, time.monotonic())

    def decided(self, name: str, state: int, code: int, call: int) -> None:
        """Note the answer to a decision."""
        with self._lock:
            at = time.monotonic()
            self._keep(lambda: self.halves.reported_of(name, state, code, call=call, time=at))

    def seen(self, name: str, key: str, stored_ms: int, place: tuple[int, int]) -> None:
        """Note a visible record; `place`: partition and offset."""
        with self._lock:
            if name.startswith("l"):
                self._came[key[-36:]].append(Came(key, 0, stored_ms))
            else:
                self._seen[name].append(stored_ms)
                partition, offset = str(place[0]), place[1]
                fields: dict[str, Any] = {"place": [NAME, partition, offset], "at": offset, "log": partition}
                op = "visible" if name.startswith("h") else "stored"
                self.journal.add(op, time.monotonic(), id=name, **fields)

    def _keep(self, judge: Callable[[], None]) -> None:
        try:
            judge()
        except PromiseBroken as broken:
            self._wrong.append(str(broken))

    def _missing(self) -> list[str]:
        missing = []
        for uuid, account in self.loops.items():
            if account.added and not account.cancel_asked and len(self._came[uuid]) < len(walk(account.first)):
                missing.append(account.first.id)
        return sorted(missing)

    @property
    def left(self) -> int:
        """How many are still to come."""
        with self._lock:
            committed = {each for each in self.halves.stored if self.halves.fates[each] == "commit"}
            return len(self._missing()) + len((self._acked | committed) - self._seen.keys())

    def verdict(self) -> WaitingVerdict:
        """Judge all of it."""
        with self._lock:
            found = WaitingVerdict(
                timers=len(self._acked),
                loops=sum(each.added for each in self.loops.values()),
                occurrences=sum(map(len, self._came.values())),
                cancels=self.cancels,
                halves=len(self.halves.stored),
                committed=sum(name.startswith("h") for name in self._seen),
                again=self.again,
                lost=self._missing(),
            )
            self.journal.events.extend(self.halves.journal.events)
            found.faults = judge(self.journal.ordered())
            early = [name for name, due in self._due.items() for at in self._seen.get(name, ()) if at < due]
            for account in self.loops.values():
                self._keep(lambda account=account: account.check(self._came[account.first.uuid]))  # type: ignore[misc]
            visible = Counter({name: len(at) for name, at in self._seen.items() if name.startswith("h")})
            self._keep(lambda: self.halves.check(visible))
            found.wrong = [*self._wrong, *(f"{name} is early" for name in early)]
            return found


class NodeCalls:
    """Calls of any node that runs, one after the other, on a connection that is made again."""

    def __init__(self, producers: Callable[[], list[str]], drawn: Random) -> None:
        self._producers = producers
        self._drawn = drawn
        self._codec = producer_codec()
        self._connection: socket.socket | None = None

    def call(self, method: str, **arguments: Any) -> Any:
        """Call; None: no answer came."""
        try:
            if self._connection is None or self._drawn.random() < 0.05:
                self.close()
                host, _, port = self._drawn.choice(self._producers()).rpartition(":")
                self._connection = socket.create_connection((host, int(port)), CALL_SECONDS)
            self._connection.sendall(self._codec.call(method, 1, **arguments))
            frames = Frames()
            while data := self._connection.recv(65_536):
                for _, payload in frames.feed(data):
                    reply = self._codec.reply(payload)
                    return None if reply.error is not None else reply.value
        except (OSError, IndexError):
            pass
        self.close()
        return None

    def close(self) -> None:
        """End the connection."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None


class WaitingLoad:
    """The topics, and threads that send, decide, check and read.

    Args:
        address: Of Kafka.
        drawn: Draws.
        producers: Addresses of the producer ports of the nodes that run now.
    """

    def __init__(self, address: str, drawn: Random, producers: Callable[[], list[str]]) -> None:
        make_topic(address, NAME, PARTITIONS, {})
        make_topic(address, WAITING, WAITING_PARTITIONS, {**TOPIC_SETTINGS, **COMPACTED})
        make_topic(address, ANSWERS, 1, ANSWER_SETTINGS)
        self.account = WaitingAccount()
        self._address = address
        self._seed = drawn.random()
        self._producers = producers
        self._stopping, self._over = threading.Event(), threading.Event()
        self._open: list[tuple[str, Any, int]] = []
        """Calls that were not answered: what, about what, and which attempt comes next."""
        self._senders = [threading.Thread(target=self._send, args=(number,), daemon=True) for number in range(3)]
        self._others = [threading.Thread(target=each, daemon=True) for each in (self._read, self._check)]
        for thread in (*self._senders, *self._others):
            thread.start()

    def stop(self) -> None:
        """Begin nothing more; what is open is sent until it is answered."""
        self._stopping.set()
        for thread in self._senders:
            thread.join(240)

    def end(self) -> None:
        """Read nothing more."""
        self._stopping.set()
        self._over.set()
        for thread in self._others:
            thread.join(30)

    def _send(self, number: int) -> None:
        drawn = Random(f"{self._seed} {number}")
        calls = NodeCalls(self._producers, drawn)
        sent = 0
        while not self._over.is_set():
            if self._stopping.is_set() and not self._open:
                break
            again = None
            if self._open and (self._stopping.is_set() or drawn.random() < 0.3):
                with suppress(IndexError):
                    again = self._open.pop(0)
            if again is not None:
                self.account.again += 1
                getattr(self, f"_{again[0]}")(calls, again[1], again[2])
            elif not self._stopping.is_set():
                sent += 1
                self._begin(calls, drawn, f"{number}-{sent}")
            time.sleep(PAUSE_SECONDS)
        calls.close()

    def _begin(self, calls: NodeCalls, drawn: Random, name: str) -> None:
        kind = drawn.choice(("timer", "timer", "loop", "loop", "cancel", "half", "half"))
        if kind == "timer":
            self._timer(calls, drawn, f"t{name}")
        elif kind == "half":
            self._half(calls, drawn, f"h{name}")
        elif kind == "loop":
            self._new_loop(calls, drawn, name)
        else:
            known = [each for each in list(self.account.loops.values())[-40:] if each.added]
            if known:
                account = drawn.choice(known)
                account.cancel_asked = True
                self._cancel(calls, account, 0)

    def _timer(self, calls: NodeCalls, drawn: Random, name: str) -> None:
        due_ms = int(time.time() * 1000) + drawn.randrange(300, LONGEST_MS)
        self.account.asks_timer(name, due_ms)
        message = producer_idl.Message(topic=NAME, body=name.encode(), partitionId=-1, hashId=0, deliverAtMs=due_ms)
        result = calls.call("sendSync", message=message, timeout=CALL_MS)
        if result is not None and result.code == 0:
            self.account.stored_timer(name)

    def _new_loop(self, calls: NodeCalls, drawn: Random, name: str) -> None:
        number, _, sent = name.partition("-")
        uuid = f"{int(number):08x}-0000-0000-0000-{int(sent):012x}"
        at_s = int(time.time()) + drawn.choice((0, 1, 3, 8))
        if drawn.random() < 0.5:
            first = Occurrence(at_s, ONCE, at_s + 172_800, 0, 0, 0, 0, uuid)
        else:
            first = Occurrence(at_s, LOOP, at_s + 100_000, drawn.choice((1, 3, 5)), 0, drawn.choice((3, 4)), 0, uuid)
        account = self.account.loops[uuid] = LoopAccount(first)
        self._add(calls, account, 0)

    def _add(self, calls: NodeCalls, account: LoopAccount, attempt: int) -> None:
        first = account.first
        message = producer_idl.DelayMessage(
            topic=NAME, body=b"l" + first.uuid.encode(), action=1, timestamp=first.at_s, dmsgtype=first.kind,
            interval=first.interval, times=first.times, expire=first.expire_s, uuid=first.uuid,
        )  # fmt: skip
        result = calls.call("sendDelaySync", delayMessage=message, timeout=CALL_MS)
        if result is not None and result.code == 0:
            account.added = True
        elif attempt < ADDS_MAX:
            self._open.append(("add", account, attempt + 1))

    def _cancel(self, calls: NodeCalls, account: LoopAccount, attempt: int) -> None:
        message = producer_idl.DelayMessage(topic=NAME, body=b"-", action=2, uniqDelayMsgId=account.first.id)
        result = calls.call("sendDelaySync", delayMessage=message, timeout=CALL_MS)
        if result is None or result.code != 0 or result.cancelOutcome == CANCEL_UNKNOWN:
            self._open.append(("cancel", account, attempt + 1))
        else:
            self.account.cancelled(account, result.cancelOutcome, int(time.time() * 1000))

    def _half(self, calls: NodeCalls, drawn: Random, name: str) -> None:
        fate = drawn.choice(("commit", "commit", "rollback", "never", "both"))
        if fate == "never" and sum(each == "never" for each in self.account.halves.fates.values()) >= UNDECIDED_MAX:
            fate = "rollback"
        self.account.halves.fates[name] = fate
        message = producer_idl.Message(
            topic=NAME, body=name.encode(), partitionId=-1, hashId=0, properties={"name": name}
        )
        result = calls.call("sendHalfSync", message=message, producerGroup=GROUP, timeout=CALL_MS)
        if result is None or result.code != 0:
            return
        self.account.halves.stored.add(name)
        states = {"commit": [COMMIT], "rollback": [ROLLBACK], "never": [UNKNOWN], "both": [COMMIT, ROLLBACK]}[fate]
        drawn.shuffle(states)
        for state in states if drawn.random() < 0.7 else ():
            self._decide(calls, (name, result.handle, state), 0)

    def _decide(self, calls: NodeCalls, about: tuple[str, str, int], attempt: int) -> None:
        name, handle, state = about
        decision = producer_idl.EndTransaction(producerGroup=GROUP, handle=handle, state=state)
        call = self.account.decides(name, state)
        result = calls.call("endTransaction", decision=decision)
        if result is None or result.code not in (0, 44):
            if state != UNKNOWN:
                self._open.append(("decide", about, attempt + 1))
        else:
            self.account.decided(name, state, result.code, call)

    def _check(self) -> None:
        """Answer checks at every node in turn."""
        calls: dict[str, NodeCalls] = {}
        while not self._over.wait(0.1):
            addresses = self._producers()
            for address in [each for each in calls if each not in addresses]:
                calls.pop(address).close()
            for address in addresses:
                ways = calls.setdefault(address, NodeCalls(lambda address=address: [address], Random(1)))  # type: ignore[misc]
                self._answer_checks(ways)
        for ways in calls.values():
            ways.close()

    def _answer_checks(self, calls: NodeCalls) -> None:
        request = producer_idl.CheckRequest(producerGroup=GROUP, maxBatchSize=16, maxLingerTime=20)
        answers = []
        for check in calls.call("fetchChecks", request=request) or ():
            fate = self.account.halves.fates[check.message.properties["name"]]
            state = {"commit": COMMIT, "rollback": ROLLBACK, "never": UNKNOWN, "both": COMMIT}[fate]
            self.account.decides(check.message.properties["name"], state)
            answers.append(
                producer_idl.EndTransaction(producerGroup=GROUP, handle=check.handle, state=state, fromCheck=True)
            )
        if answers:
            request = producer_idl.CheckRequest(producerGroup=GROUP, maxBatchSize=1, maxLingerTime=0, answers=answers)
            calls.call("fetchChecks", request=request)

    def _read(self) -> None:
        consumer = KafkaConsumer({
            "bootstrap.servers": self._address, "group.id": f"sees-{NAME}", "auto.offset.reset": "earliest",
            "isolation.level": "read_committed", "enable.auto.commit": False, "log_level": 0,
        })  # fmt: skip
        # Without rebalances: an offset is seen once.
        places: dict[int, int] = {}
        consumer.subscribe([NAME])
        while not self._over.is_set():
            for message in consumer.consume(500, 0.2):
                partition, offset = message.partition(), message.offset()
                if message.error() is not None or offset is None or partition is None:
                    continue
                if offset < places.get(partition, 0):
                    continue
                places[partition] = offset + 1
                key = (message.key() or b"").decode()
                name = (message.value() or b"").decode()
                self.account.seen(name, key, message.timestamp()[1], (partition, offset))
        consumer.close()


def said(verdict: WaitingVerdict) -> str:
    """One line for people."""
    return (
        f"what waits: {verdict.timers:,} timers, {verdict.loops:,} delays and loops with {verdict.occurrences:,} "
        f"deliveries, cancels by outcome {dict(verdict.cancels)}, {verdict.halves:,} halves of which "
        f"{verdict.committed:,} became visible, {verdict.again:,} calls sent again: {len(verdict.faults)} faults of "
        f"the history, {len(verdict.lost)} loops lost, {len(verdict.wrong)} wrong"
    )
