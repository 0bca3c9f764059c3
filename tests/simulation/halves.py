"""Producers of transactions, those who answer the node's checks, and their account of what was told and answered.

A half that was acknowledged ends once: as it was decided, first or in answer to a check. What was committed is there
exactly once, what was rolled back or never decided is seen by nobody, and no decision is ever undone.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from tests.histories.journal import Journal
from tests.simulation.facts import PromiseBroken
from tests.simulation.lines import Client, Link, Surroundings
from tests.simulation.wire import Reply, producer_codec, producer_idl

TOPIC = "paid"
GROUP = "shop"
UNKNOWN, COMMIT, ROLLBACK = 0, 8, 12
DECIDED_OTHERWISE = 44
STATES, RESULTS = {COMMIT: "commit", ROLLBACK: "rollback"}, {0: "taken", DECIDED_OTHERWISE: "refused"}
PAUSE_SECONDS = 0.1
RECENT = 50
HOSTS, REAL_HOSTS = "10.4.0", "127.5.0"
"""Where they come from, in the simulated network and on the loopback."""
SETTINGS = {"transactionTimeOut": 300, "transactionCheckInterval": 500, "transactionCheckMax": 1_000_000}
"""Of a node that asks soon, and never gives up."""


@dataclass(slots=True)
class HalfAccount:
    """What producers told and heard, by the name of a message.

    Attributes:
        fates: What its transaction is to become: `commit`, `rollback`, `never` (told by nobody) or `both` (are told).
        sizes: Bytes of its body.
        stored: Its half was acknowledged.
        told: Decisions that were acknowledged, state by state.
        checks: How often it was asked about.
        heard: Its decision in answer to a check was taken.
        stored_at, reported_at: When what they have was last answered.
        asked_ms: When the node last asked about one that is to be decided.
        journal: Decisions and their answers.
    """

    fates: dict[str, str] = field(default_factory=dict)
    sizes: dict[str, int] = field(default_factory=dict)
    stored: set[str] = field(default_factory=set)
    reported: dict[str, set[int]] = field(default_factory=dict)
    stored_at: dict[str, float] = field(default_factory=dict)
    reported_at: dict[str, float] = field(default_factory=dict)
    checks: Counter[str] = field(default_factory=Counter)
    heard: set[str] = field(default_factory=set)
    asked_ms: int = 0
    journal: Journal = field(default_factory=Journal)

    @property
    def never(self) -> int:
        """How many may stay undecided for ever."""
        return sum(fate == "never" for fate in self.fates.values())

    @property
    def open(self) -> int:
        """How many of the latest were stored and are still to be decided, as far as producers have heard."""
        latest = list(self.fates)[-RECENT:]
        return sum(map(self._is_open, latest))

    def _is_open(self, name: str) -> bool:
        decided = name in self.reported or name in self.heard
        return name in self.stored and not decided and self.fates[name] != "never"

    def asks(self, name: str, state: int, time: float) -> int:
        """Note a decision that is about to be sent; return its number."""
        call = len(self.journal.events)
        if state != UNKNOWN:
            self.journal.add("decide", time, id=name, state=STATES[state], call=call)
        return call

    def reported_of(self, name: str, state: int, code: int, *, call: int, time: float) -> None:
        """Note an answer to a decision."""
        if state != UNKNOWN:
            result = RESULTS.get(code, "unknown")
            self.journal.add("decided", time, id=name, state=STATES[state], result=result, call=call)
        if code == 0 and state != UNKNOWN:
            self.reported.setdefault(name, set()).add(state)
            self.reported_at[name] = time
            if len(self.reported[name]) > 1:
                raise PromiseBroken(5, f"{name} was committed and rolled back")
        elif code == DECIDED_OTHERWISE:
            other = ROLLBACK if state == COMMIT else COMMIT
            if self.fates[name] != "both" and state in self.reported.get(name, ()):
                raise PromiseBroken(5, f"{name} was decided {state} and now {other}")

    def undone(self, since: float) -> None:
        """Note that a power loss took what was not synced: what was answered since that time may hold, or not."""
        self.stored -= {name for name, time in self.stored_at.items() if time >= since}
        for name in [name for name, time in self.reported_at.items() if time >= since]:
            self.reported.pop(name, None)
            # A commit that is undone may be lost with its half.
            self.stored.discard(name)
        for event in self.journal.events:
            if event["op"] == "decided" and event["t"] >= since:
                event["result"] = "unknown"

    def check(self, found: Counter[str]) -> None:
        """Hold what is in the topic, by name, against what was told. Raises PromiseBroken: 1 or 5."""
        for name, count in found.items():
            if name not in self.fates:
                raise PromiseBroken(1, f"nobody sent the transaction {name}")
            if count > 1:
                raise PromiseBroken(5, f"{name} was committed {count} times")
            if self.fates[name] in ("rollback", "never"):
                raise PromiseBroken(5, f"{name} is visible, and its fate is {self.fates[name]}")
        for name, states in self.reported.items():
            if (name in found) != (states == {COMMIT}):
                raise PromiseBroken(5, f"{name} was told {states} and is {'' if name in found else 'not '}visible")
        lost = [name for name in self.stored if self.fates[name] == "commit" and name not in found]
        if lost:
            raise PromiseBroken(1, f"committed and lost: {sorted(lost)}")


class HalfProducer(Client):
    """Sends halves and decides most of them at once."""

    pause_seconds = PAUSE_SECONDS
    body_bytes: tuple[int, ...] = (50,)

    def __init__(self, around: Surroundings, number: int, account: HalfAccount) -> None:
        host = f"{HOSTS if around.exact else REAL_HOSTS}.{number}"
        super().__init__(f"halves {number}", host, producer_codec(compact=True), around, around.producer_address)
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
        size = self.account.sizes[name] = self.body_bytes[self._sends % len(self.body_bytes)]
        message = producer_idl.Message(topic=TOPIC, body=b"x" * size, properties={"name": name})
        self.call("sendHalfSync", name, message=message, producerGroup=GROUP, timeout=3000)
        self.later(self.pause_seconds, self._work, link)

    def on_reply(self, link: Link, about: Any, reply: Reply, stamp: Any) -> None:
        if reply.error is not None:
            raise PromiseBroken(7, f"{reply.method} was answered with {reply.error!r}")
        if reply.method == "endTransaction":
            name, state, call = about
            self.account.reported_of(name, state, reply.value.code, call=call, time=stamp.time)
        elif reply.value.code == 0:
            self.account.stored.add(about)
            self.account.stored_at[about] = stamp.time
            self.around.counts["half_stored"] += 1
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
            call = self.account.asks(name, state, self.around.loop.time())
            self.call("endTransaction", (name, state, call), decision=decision)


class Checked(Client):
    """Fetches checks and answers them with the next fetch, now and then not at all, or loses its connection."""

    def __init__(self, around: Surroundings, number: int, account: HalfAccount) -> None:
        host = f"{HOSTS if around.exact else REAL_HOSTS}.{number}"
        super().__init__(f"checked {number}", host, producer_codec(compact=True), around, around.producer_address)
        self.account = account
        self.perfect = False
        self._answers: list[tuple[str, Any]] = []

    def on_connected(self) -> None:
        self._fetch(self.link)

    def _fetch(self, link: Link | None) -> None:
        if link is None or link is not self.link or self.stopped:
            return
        answers, self._answers = self._answers, []
        request = producer_idl.CheckRequest(
            producerGroup=GROUP,
            maxBatchSize=4,
            maxLingerTime=self.around.random.choice((50, 500)),
            answers=[answer for _, answer in answers],
        )
        for name, answer in answers:
            self.account.asks(name, answer.state, self.around.loop.time())
        self.call("fetchChecks", answers, request=request)

    def on_reply(self, link: Link, about: Any, reply: Reply, stamp: Any) -> None:
        if reply.error is not None:
            # Starting, or short of memory: in words, with kind 6.
            self.later(0.1, self._fetch, link)
            return
        self.account.heard.update(name for name, answer in about if answer.state != UNKNOWN)
        for check in reply.value:
            name = check.message.properties["name"]
            self.account.checks[name] += 1
            self.around.counts["half_asked"] += 1
            fate = self.account.fates[name]
            if fate != "never":
                self.account.asked_ms = self.around.wall_ms()
            state = {"commit": COMMIT, "rollback": ROLLBACK, "never": UNKNOWN, "both": COMMIT}[fate]
            if check.message.topic != TOPIC or check.message.body != b"x" * self.account.sizes[name]:
                raise PromiseBroken(7, f"the check of {name} has another message")
            if self.perfect or not self.chance(0.3):
                answer = producer_idl.EndTransaction(
                    producerGroup=GROUP, handle=check.handle, state=state, fromCheck=True, remark="a check"
                )
                self._answers.append((name, answer))
        self.later(0.02, self._fetch, link)

    def on_lost(self, link: Link) -> None:
        # What no answer confirmed is told again; the second time changes nothing.
        for answers, _ in link.pending.values():
            self._answers.extend(answers)
        super().on_lost(link)
