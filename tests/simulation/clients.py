"""Simulated producers and pull clients: they speak Thrift, misbehave by habit, and enter what they see in the ledger.

All are callbacks on the virtual loop. A client keeps one connection and makes a new one when it is lost.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from random import Random
from typing import Any, NamedTuple
from zlib import crc32

from pyddmq.codes import PullCode
from tests.simulation.deeds import SUCCESS, Deeds, Send
from tests.simulation.ledger import Place, PromiseBroken, Publish, Stamp
from tests.simulation.lines import Client, Link, Surroundings
from tests.simulation.waits import Wait
from tests.simulation.wire import Reply, consumer_codec, consumer_idl, producer_codec, producer_idl

LEVELS_MS = (1_000, 2_000, 4_000)
"""Delay levels of the simulated node."""

BIG_BYTES = (300_000, 1_100_000)

REFUSED_CODES = frozenset({11, 13, 14, 15})
"""Result codes that promise that nothing was stored; any other failure leaves it open."""

NOT_RECORDED = (PullCode.STARTING, PullCode.ACKS_REFUSED, PullCode.STORE_FAILED)
"""Refusals of a pull whose results were not taken."""


@dataclass(slots=True)
class ProducerHabits:
    """How a producer behaves; may be changed while it runs."""

    pause_seconds: float = 0.05
    batch_share: float = 0.3
    refused_share: float = 0.05
    broken_json_share: float = 0.03
    keys: int = 12
    pipelined: int = 6
    pad_bytes_max: int = 200
    quiet: bool = False
    """It sends nothing for the time."""
    wait_share: float = 0.0
    """Of messages that wait: a third by level, until a moment, for a time. The node must know three levels."""
    wait_ms: tuple[int, ...] = (4_000,)
    """The longest waits for and until a time; each message draws one of them."""
    big_share: float = 0.0
    """Of messages that are big."""


class Producer(Client):
    """Sends messages of seeded shape, up to `limit` of them."""

    def __init__(
        self,
        name: str,
        host: str,
        around: Surroundings,
        habits: ProducerHabits,
        *,
        topics: tuple[str, ...],
        compact: bool,
        number: int = 0,
    ) -> None:
        super().__init__(name, host, producer_codec(compact=compact), around, around.producer_address)
        self.habits = habits
        self.topics = topics
        self.limit = 1 << 30
        self.number = number
        self.deeds = around.deeds or Deeds()
        self._calls = 0
        # Every message has a source of its own, so that leaving one out leaves the others as they were drawn.
        self._source = around.random.getrandbits(64)

    def on_connected(self) -> None:
        self._work(self.link)

    def _work(self, link: Link | None) -> None:
        if link is None or link is not self.link or self.stopped:
            return
        is_allowed = not self.habits.quiet and len(self.around.ledger.publishes) < self.limit
        if is_allowed and len(link.pending) < self.habits.pipelined:
            self._send()
        self.later(self.habits.pause_seconds, self._work, link)

    def _send(self) -> None:
        self._calls += 1
        random, habits = Random(f"{self._source} {self._calls}"), self.habits
        if random.random() < habits.refused_share:
            if self.deeds.may_send(Send(self.number, self._calls)):
                self._send_refused(random)
            return
        count = random.randrange(2, 9) if random.random() < habits.batch_share else 1
        topic = random.choice(self.topics)
        sends = [Send(self.number, self._calls, index) for index in range(count)]
        publishes = [self._make(topic, each) for each in sends if self.deeds.may_send(each)]
        if not publishes:
            return
        messages = [message_of(publish) for publish in publishes]
        if count > 1:
            self._mark_batch(publishes)
            self.call("sendBatchSync", publishes, messages=messages, receipts=True)
        elif random.random() < 0.2:
            self.call("sendAsync", publishes, message=messages[0])
        else:
            self.call("sendSync", publishes, message=messages[0], timeout=3_000)

    def _send_refused(self, random: Random) -> None:
        """Send something that must be refused, in one of several ways, also in the middle of a batch."""
        topics = [random.choice(self.topics) for _ in range(3)]
        publishes = [self._make(topic, Send(self.number, self._calls, index)) for index, topic in enumerate(topics)]
        bad = random.choice(publishes)
        way = random.randrange(4)
        messages = [message_of(publish) for publish in publishes]
        spoilt = messages[publishes.index(bad)]
        if way == 0:
            spoilt.topic = "nowhere"
        elif way == 1:
            spoilt.key = "a\x01b"
        elif way == 2:
            spoilt.properties = {"UNIQ_KEY": "mine"}
        else:
            spoilt.topic = "%DLQ%by-key"
        self.around.counts["refused_publish"] += 1
        self._mark_batch(publishes)
        self.call("sendBatchSync", publishes, messages=messages, receipts=True)

    def _mark_batch(self, publishes: list[Publish]) -> None:
        for publish in publishes:
            publish.batch = publishes[0].uid

    def _make(self, topic: str, send: Send) -> Publish:
        random, ledger, habits = Random(f"{self._source} {send.call} {send.member}"), self.around.ledger, self.habits
        assert self.link is not None
        uid = len(ledger.publishes) + 1
        key = f"k{random.randrange(self.habits.keys)}" if random.random() < 0.9 else ""
        case: Any = random.choice([f"c{random.randrange(self.habits.keys)}", random.randrange(3), None, {"no": "key"}])
        path_key = str(case) if isinstance(case, (str, int)) else None
        pad = "x" * random.randrange(habits.pad_bytes_max)
        if habits.big_share and random.random() < habits.big_share:
            pad = "x" * random.choice(BIG_BYTES)
        body = json.dumps({"uid": uid, "case id": case, "pad": pad}).encode()
        is_json = random.random() >= habits.broken_json_share
        if not is_json:
            body = random.choice([b"", b"{", b"no json", b"[1, 2"])
            if not body:
                body = b"\xff\x00"
        publish = Publish(
            uid=uid,
            topic=topic,
            key=key,
            tag=random.choice(["red", "blue", ""]),
            body=body,
            path_key=path_key,
            json=is_json,
            connection=id(self.link),
            sent=self.link.stamp(self.around.edge.now()),
            wait=self._wait(random) if habits.wait_share and random.random() < habits.wait_share else None,
            name=f"{send.producer}.{send.call}.{send.member}",
        )
        ledger.sent(publish)
        return publish

    def _wait(self, random: Random) -> Wait:
        """Draw a wait of up to some seconds; a moment may be over already."""
        longest_ms = random.choice(self.habits.wait_ms)
        if (kind := random.choice(("level", "at", "delay"))) == "level":
            level = random.randrange(1, 4)
            return Wait("level", LEVELS_MS[level - 1], level)
        if kind == "at":
            due_ms = self.around.wall_ms() + random.randrange(-500, longest_ms)
            return Wait("at", due_ms, due_ms)
        delay_ms = random.randrange(1, longest_ms)
        return Wait("delay", delay_ms, delay_ms)

    def on_reply(self, link: Link, about: list[Publish], reply: Reply, stamp: Stamp) -> None:
        ledger = self.around.ledger
        if reply.error is not None:
            raise PromiseBroken(7, f"{reply.method} was answered with {reply.error!r}")
        result = reply.value
        self.around.counts[f"publish_code_{result.code}"] += 1
        if result.code != 0:
            outcome = "refused" if result.code in REFUSED_CODES else "unknown"
            for publish in about:
                ledger.settled(publish.uid, outcome, stamp)
            return
        reported = result.receipts if reply.method == "sendBatchSync" else [result]
        for publish, receipt in zip(about, reported, strict=True):
            placed = bool(receipt.qid)
            if placed == (publish.wait is not None) and not (placed and publish.wait and publish.wait.kind != "level"):
                raise PromiseBroken(7, f"message {publish.uid} with {publish.wait} was answered with {receipt}")
            self.around.counts[f"wait_{publish.wait.kind if publish.wait and not placed else 'none'}"] += 1
            ledger.settled(publish.uid, "stored", stamp, (receipt.qid, receipt.offset) if placed else None)
            if not placed:
                # What waits in a level has no handle: its id is its name.
                ledger.timer_made(publish.uid, receipt.handle or receipt.msgId)

    def on_lost(self, link: Link) -> None:
        now = link.stamp(self.around.edge.now())
        for about, _ in link.pending.values():
            for publish in about:
                self.around.ledger.settled(publish.uid, "unknown", now)
        super().on_lost(link)


@dataclass(slots=True)
class ConsumerHabits:
    """How a pull client behaves; shares of messages unless said."""

    work_seconds: float = 0.004
    fail_share: float = 0.06
    silent_share: float = 0.03
    late_share: float = 0.04
    repeat_share: float = 0.04
    submit_share: float = 0.3
    nonsense_share: float = 0.03
    resend_share: float = 0.8
    stall_share: float = 0.0
    linger_ms: int = 300
    batch_max: int = 8
    poison: bool = True


BY_LIST = replace(ConsumerHabits(), repeat_share=0, submit_share=0, nonsense_share=0, resend_share=1.0)
"""Habits of a run whose deeds are listed: nothing else is bad."""

PERFECT = ConsumerHabits(
    work_seconds=0.0, fail_share=0, silent_share=0, late_share=0, repeat_share=0, nonsense_share=0, resend_share=1.0
)
"""Habits of the end of a run: everything is answered with success, at once."""


class Result(NamedTuple):
    """One answer of a client, to be sent: to which delivery, and its number where it had one, else 0."""

    place: Place
    success: bool
    of: Stamp
    number: int


class Consumer(Client):
    """Pulls for one group and answers by habit: success, failure, silence, late, twice, after a reconnect."""

    def __init__(
        self,
        name: str,
        host: str,
        around: Surroundings,
        habits: ConsumerHabits,
        *,
        group: str,
        topic: str | None,
        timeout: float,
        compact: bool,
        names: bool = False,
    ) -> None:
        super().__init__(name, host, consumer_codec(compact=compact), around, around.consumer_address)
        self.group = group
        self.topic = topic
        self.habits = habits
        self.timeout = timeout
        self.names = names
        self.results: list[Result] = []
        self._pulling = False

    def on_connected(self) -> None:
        self._pulling = False
        self._pull()

    def _pull(self) -> None:
        if self.link is None or self._pulling or self.stopped:
            return
        self._pulling = True
        results = self._take_results()
        request = consumer_idl.PullRequest(
            groupId=self.group,
            topic=self.topic,
            maxBatchSize=self.around.random.randrange(0, self.habits.batch_max + 1),
            maxLingerTime=self.habits.linger_ms,
            result=self._chain(results),
        )
        self.call("pull", results, lambda stamp: self._arrived(results, stamp), request=request)

    def _submit(self) -> None:
        results = self._take_results()
        if self.link is None or not results:
            return
        self.call("submit", results, lambda stamp: self._arrived(results, stamp), result=self._chain(results))

    def _take_results(self) -> list[Result]:
        results, self.results = self.results, []
        return results

    def _chain(self, results: list[Result]) -> Any:
        """Return the results as a nextResult chain, one element per queue; now and then with nonsense in it."""
        queues: dict[tuple[str, str], tuple[list[int], list[int], dict[int, int]]] = {}
        newest: dict[Place, int] = {}
        for result in results:
            lists = queues.setdefault((result.place.topic, result.place.qid), ([], [], {}))
            (lists[0] if result.success else lists[1]).append(result.place.offset)
            if result.of.sequence >= newest.get(result.place, -1):
                # Of two it is the later delivery: its message may have the place of one that is gone.
                newest[result.place] = result.of.sequence
                lists[2].pop(result.place.offset, None)
                if result.number:
                    lists[2][result.place.offset] = result.number
        chain = None
        for (topic, qid), (success, fail, numbers) in queues.items():
            context = consumer_idl.Context(groupId=self.group, topic=topic, qid=qid)
            chain = consumer_idl.ConsumeResult(
                context=context,
                successOffsets=success,
                failOffsets=fail,
                nextResult=chain,
                deliveries=numbers if self.names else None,
            )
        if self.chance(self.habits.nonsense_share):
            chain = self._nonsense(chain)
        return chain

    def _nonsense(self, chain: Any) -> Any:
        """Put a result in front that names nothing; it must neither fail the call nor change anything (D13)."""
        self.around.counts["nonsense_result"] += 1
        random = self.around.random
        context = random.choice(
            [
                None,
                consumer_idl.Context(groupId="nobody", topic="orders", qid="x"),
                consumer_idl.Context(groupId=self.group, topic="nowhere", qid="pyddmq_broker-0_0"),
                consumer_idl.Context(groupId=self.group, topic="orders", qid="pyddmq_broker-0_99"),
                consumer_idl.Context(groupId=self.group, topic="orders", qid="%s%n"),
            ]
        )
        offsets = [-1, 1 << 40, random.randrange(100)]
        return consumer_idl.ConsumeResult(
            context=context, successOffsets=offsets, failOffsets=offsets, nextResult=chain
        )

    def _arrived(self, results: list[Result], stamp: Stamp) -> None:
        for place, success, of, _ in results:
            self.around.ledger.answered(self.group, place, self.host, stamp, success, of, self.names)

    def on_reply(self, link: Link, about: list[Result], reply: Reply, stamp: Stamp) -> None:
        if reply.error is not None:
            code = getattr(reply.error, "code", None)
            if code not in (PullCode.OVERLOADED, *NOT_RECORDED):
                raise PromiseBroken(7, f"{reply.method} was answered with {reply.error!r}")
            self.around.counts[f"pull_code_{int(code)}"] += 1
        refused = reply.error is not None and code in NOT_RECORDED
        if refused and about:
            # A library that throws results away with an exception would have them come again.
            raise PromiseBroken(2, f"{reply.method} with results was answered with {reply.error!r}")
        if not refused and not (reply.method == "submit" and reply.value is False):
            for place, success, of, _ in about:
                if success:
                    self.around.ledger.confirmed(self.group, place, stamp, of)
        if reply.method != "pull":
            return
        self._pulling = False
        if reply.error is not None:
            self.later(0.05, self._pull)
            return
        if reply.value.messages:
            self._receive(reply.value, stamp)
        self._maybe_stall()
        self.later(self.habits.work_seconds, self._pull)

    def _receive(self, response: Any, stamp: Stamp) -> None:
        context = response.context
        if context.groupId != self.group or (self.topic is not None and context.topic != self.topic):
            raise PromiseBroken(7, f"{self.name} pulled {self.group} {self.topic} and got {context}")
        for message in response.messages:
            place = Place(context.topic, context.qid, message.offset)
            body = message.value.encode() if isinstance(message.value, str) else message.value
            uid = self.uid_of(message, place, body)
            self.around.ledger.delivered(
                self.group, place, self.host, stamp, uid=uid, key=message.key, tag=message.tag, body=body
            )
            self.around.counts["delivered"] += 1
            self._decide(uid, partial(Result, place, of=stamp, number=message.delivery or 0))

    def uid_of(self, message: Any, place: Place, body: bytes) -> int:
        """Number of a message, which its producer gave it. Raises PromiseBroken: 1."""
        if "uid" not in message.properties:
            raise PromiseBroken(1, f"{place} came to {self.group} without its properties")
        return int(message.properties["uid"])

    def _decide(self, uid: int, answer: Callable[[bool], Result]) -> None:
        """Answer one message by habit, or as the run's list of deeds has it."""
        deeds, publish = self.around.deeds, self.around.ledger.publishes[uid]
        name = publish.name or publish.key
        draw = partial(self._draw, name)
        did = draw() if deeds is None or self.habits is PERFECT else deeds.answer(self.group, name, draw)
        what, _, success = did.partition(" ")
        if did != SUCCESS:
            self.around.counts[what] += 1
        if what != "silent":
            seconds = self.timeout * 1.5 if what == "late" else self.habits.work_seconds
            self.later(seconds, self._answer, answer(SUCCESS in (what, success)))

    def _draw(self, name: str) -> str:
        habits = self.habits
        if habits.poison and crc32(name.encode()) % 41 == 0:
            return "poison"
        if self.chance(habits.silent_share):
            return "silent"
        if self.chance(habits.late_share):
            return "late success" if self.chance(0.7) else "late failure"
        return "failed" if self.chance(habits.fail_share) else SUCCESS

    def _answer(self, result: Result) -> None:
        self.results.append(result)
        if self.chance(self.habits.repeat_share):
            self.around.counts["repeated_result"] += 1
            self.later(self.timeout * self.around.random.random(), self.results.append, result)
        if not self._pulling:
            self._pull()
        elif self.chance(self.habits.submit_share):
            self._submit()

    def _maybe_stall(self) -> None:
        """Stop reading for a while: a slow client, whose replies pile up at the node."""
        if self.link is None or not self.chance(self.habits.stall_share):
            return
        transport = self.link.transport
        self.around.counts["stalled_reader"] += 1
        transport.pause_reading()
        self.around.loop.call_later(self.timeout * self.around.random.random() * 2, transport.resume_reading)

    def on_lost(self, link: Link) -> None:
        # A client library keeps results whose call was not answered and sends them again (S2); some do not.
        for results, _ in link.pending.values():
            if self.chance(self.habits.resend_share):
                self.around.counts["resent_results"] += len(results)
                self.results.extend(results)
        super().on_lost(link)


def message_of(publish: Publish) -> Any:
    """Return a publish as the IDL's message."""
    return producer_idl.Message(
        topic=publish.topic,
        key=publish.key or None,
        tags=publish.tag or None,
        body=publish.body,
        properties={"uid": str(publish.uid)},
        **wait_of(publish),
    )


def wait_of(publish: Publish) -> dict[str, int]:
    """Return the fields of a publish's wait."""
    if publish.wait is None:
        return {}
    return {{"level": "delayLevel", "at": "deliverAtMs", "delay": "delayMs"}[publish.wait.kind]: publish.wait.value}
