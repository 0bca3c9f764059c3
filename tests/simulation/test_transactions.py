"""A whole node under faults, with producers of transactions: each ends once, as it was decided, or stays unseen."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from random import Random
from typing import Any

import pytest

from broker.metrics import Metrics
from broker.properties import parse_properties
from broker.record import split
from broker.store import Store
from tests.simulation.clients import ProducerHabits
from tests.simulation.faults import FAULTS
from tests.simulation.ledger import PromiseBroken
from tests.simulation.lines import Client, Link
from tests.simulation.wire import Reply, producer_codec, producer_idl
from tests.simulation.world import DATA, World, settings, store_options

TOPIC = "paid"
GROUP = "shop"
UNKNOWN, COMMIT, ROLLBACK = 0, 8, 12
FAULTS_USED = ("kill", "kill_twice", "lose_power", "stop", "cut_within", "fill_disk", "fail_sync", "reset_connections")
DECIDED_OTHERWISE = 44


@dataclass(slots=True)
class Account:
    """What producers told and heard, by the name of a message.

    Attributes:
        fates: What its transaction is to become: `commit`, `rollback`, `never` (told by nobody) or `both` (are told).
        stored: Its half was acknowledged.
        told: Decisions that were acknowledged, state by state.
        checks: How often it was asked about.
    """

    fates: dict[str, str] = field(default_factory=dict)
    stored: set[str] = field(default_factory=set)
    told: dict[str, set[int]] = field(default_factory=dict)
    checks: Counter[str] = field(default_factory=Counter)

    def told_of(self, name: str, state: int, code: int) -> None:
        """Note an answer to a decision."""
        if code == 0 and state != UNKNOWN:
            self.told.setdefault(name, set()).add(state)
            if len(self.told[name]) > 1:
                raise PromiseBroken(5, f"{name} was committed and rolled back")
        elif code == DECIDED_OTHERWISE:
            other = ROLLBACK if state == COMMIT else COMMIT
            if self.fates[name] != "both" and state in self.told.get(name, ()):
                raise PromiseBroken(5, f"{name} was decided {state} and now {other}")


class HalfProducer(Client):
    """Sends halves and decides most of them at once."""

    def __init__(self, world: World, number: int, account: Account) -> None:
        around = world.surroundings(number)
        super().__init__(
            f"halves {number}", f"10.4.0.{number}", producer_codec(compact=True), around, around.producer_address
        )
        self.number = number
        self.account = account
        self._sends = 0

    def on_connected(self) -> None:
        self._work(self.link)

    def _work(self, link: Link | None) -> None:
        if link is None or link is not self.link or self.stopped:
            return
        name = f"{self.number}-{self._sends}"
        self._sends += 1
        self.account.fates[name] = self.around.random.choice(("commit", "commit", "rollback", "never", "both"))
        message = producer_idl.Message(topic=TOPIC, body=b"x" * 50, properties={"name": name})
        self.call("sendHalfSync", name, message=message, producerGroup=GROUP, timeout=3000)
        self.later(0.1, self._work, link)

    def on_reply(self, link: Link, about: Any, reply: Reply, stamp: Any) -> None:
        if reply.error is not None:
            raise PromiseBroken(7, f"{reply.method} was answered with {reply.error!r}")
        if reply.method == "endTransaction":
            name, state = about
            self.account.told_of(name, state, reply.value.code)
        elif reply.value.code == 0:
            self.account.stored.add(about)
            self._decide(about, reply.value.handle)

    def _decide(self, name: str, handle: str) -> None:
        """Tell the decision at once, later, twice, or leave it to the check."""
        fate, random = self.account.fates[name], self.around.random
        states = {"commit": [COMMIT], "rollback": [ROLLBACK], "never": [UNKNOWN], "both": [COMMIT, ROLLBACK]}[fate]
        random.shuffle(states)
        for state in states * random.choice((0, 1, 1, 2)):
            self.later(random.random() * random.choice((0, 0.01, 3)), self._end, name, handle, state)

    def _end(self, name: str, handle: str, state: int) -> None:
        if self.link is not None and not self.stopped:
            decision = producer_idl.EndTransaction(producerGroup=GROUP, handle=handle, state=state)
            self.call("endTransaction", (name, state), decision=decision)


class Checked(Client):
    """Fetches checks and answers them with the next fetch, now and then not at all, or loses its connection."""

    def __init__(self, world: World, number: int, account: Account) -> None:
        around = world.surroundings(number)
        super().__init__(
            f"checked {number}", f"10.4.0.{number}", producer_codec(compact=True), around, around.producer_address
        )
        self.account = account
        self.perfect = False
        self._answers: list[Any] = []

    def on_connected(self) -> None:
        self._fetch(self.link)

    def _fetch(self, link: Link | None) -> None:
        if link is None or link is not self.link or self.stopped:
            return
        answers, self._answers = self._answers, []
        request = producer_idl.CheckRequest(
            producerGroup=GROUP, maxBatchSize=4, maxLingerTime=self.around.random.choice((50, 500)), answers=answers
        )
        self.call("fetchChecks", answers, request=request)

    def on_reply(self, link: Link, about: Any, reply: Reply, stamp: Any) -> None:
        if reply.error is not None:
            # Starting, or short of memory: in words, with kind 6.
            self.later(0.1, self._fetch, link)
            return
        for check in reply.value:
            name = check.message.properties["name"]
            self.account.checks[name] += 1
            fate = self.account.fates[name]
            state = {"commit": COMMIT, "rollback": ROLLBACK, "never": UNKNOWN, "both": COMMIT}[fate]
            if check.message.topic != TOPIC or check.message.body != b"x" * 50:
                raise PromiseBroken(7, f"the check of {name} has another message")
            if self.perfect or not self.chance(0.3):
                self._answers.append(
                    producer_idl.EndTransaction(
                        producerGroup=GROUP, handle=check.handle, state=state, fromCheck=True, remark="a check"
                    )
                )
        self.later(0.02, self._fetch, link)

    def on_lost(self, link: Link) -> None:
        # What no answer confirmed is told again; the second time changes nothing.
        for answers, _ in link.pending.values():
            self._answers.extend(answers)
        super().on_lost(link)


def visible(world: World) -> Counter[str]:
    """Names in the topic, read from the store by itself."""
    options = store_options(settings())
    random, metrics = Random(0), Metrics()
    store = Store.open(DATA, options=options, disk=world.disk, clock=world.clock, random=random, metrics=metrics)
    found: Counter[str] = Counter()
    for queue in store.topics[TOPIC].queues:
        for physical, size, _ in queue.read(queue.min_offset, queue.max_offset):
            found[parse_properties(split(store.read(physical, size))[1])["name"]] += 1
    store.close()
    return found


@pytest.mark.parametrize("seed", range(6))
def test_transactions_end_once_under_every_fault(seed: int) -> None:
    """Committed ones are there exactly once, rolled back and undecided ones never; no decision is ever undone."""
    world, random, account = World(seed), Random(f"transactions {seed}"), Account()
    wanted = settings()
    wanted["topics"][TOPIC] = {"queues": 2}
    wanted["node"] |= {"transactionTimeOut": 300, "transactionCheckInterval": 500, "transactionCheckMax": 1_000_000}
    world.config = world._load(wanted).config
    world.start()
    world.add_producer(ProducerHabits(pause_seconds=0.2))
    for group in ("by-key", "by-path", "free"):
        world.add_consumer(group)
    producers = [HalfProducer(world, number, account) for number in (90, 91)]
    pollers = [Checked(world, number, account) for number in (92, 93)]
    for client in (*producers, *pollers):
        client.connect()
    for _ in range(6):
        world.run(seconds=random.random() * 2)
        FAULTS[random.choice(FAULTS_USED)](world, random)
    world.run(seconds=1)
    for producer in producers:
        producer.stopped = True
    for poller in pollers:
        poller.perfect = True
    world.settle()
    assert world.node is not None
    never = sum(fate == "never" for fate in account.fates.values())
    transactions = world.node.transactions
    assert world.run(until=lambda: transactions.halves.states.undecided <= never, seconds=60)
    world.run(seconds=5)
    left = transactions.halves.states.undecided
    for poller in pollers:
        poller.stopped = True
    world.check()
    found = visible(world)
    assert not [name for name, count in found.items() if count > 1], "committed twice"
    wrong = [name for name in found if account.fates[name] in ("rollback", "never")]
    assert not wrong, "rolled back or undecided, and visible"
    for name, states in account.told.items():
        assert (name in found) == (states == {COMMIT}), f"{name} was told {states}"
    committed = {name for name in account.stored if account.fates[name] == "commit"}
    assert len(committed) > 10
    assert not committed - found.keys(), "lost"
    assert left <= never
    assert account.checks, "nobody was asked"
