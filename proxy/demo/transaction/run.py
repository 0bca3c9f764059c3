"""One run of the demo: sends halves, answers checks, consumes, and decides by hand what was discarded.

It speaks Thrift to a running node, and asks the admin port as the command line does. Messages carry the run's id and
their number; checks of older runs are answered by their numbers too, and their messages are acked and not judged.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from broker.runtime.seams import Clock
from proxy.demo.transaction.story import (
    MESSAGES,
    Spoil,
    Story,
    TransactionReport,
    answer_of,
    judge,
    spoil,
    unknown_numbers,
)
from proxy.operate.views.waiting import TransactionsAnswer
from pyddmq import Consumer, LocalState, OutgoingMessage, TransactionMessage, TransactionProducer

TOPIC = "transfers"
GROUP = "transfers-audit"
PRODUCER_GROUP = "demo-transactions"
SECONDS_MAX = 45.0
"""Longest time until a half is discarded on a node that the demo has patience for."""

_LINGER_MS = 200
_CALM_PULLS = 5
"""Empty pulls at the end, in which nothing that was rolled back may come."""


class NodeTooPatient(Exception):
    """The node's checks take longer than a demo may."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionOptions:
    """What a run is made of.

    Attributes:
        producer: Address of the producer port.
        consumer: Address of the consumer port.
        run: Run id, new for each run.
        transactions: Asks the admin port for transactions, with these parameters.
        change: Has the admin port `commit` or `rollback` a transaction by its id; returns why it refused, "" if not.
        patience_seconds: How long nothing may happen beyond what the node's settings say.
        spoil: What the verdict is drawn from is spoilt so.
        tell: Told what happens, for people.
    """

    producer: str
    consumer: str
    run: str
    transactions: Callable[[dict[str, Any]], TransactionsAnswer]
    change: Callable[[str, str], str]
    patience_seconds: float = 20.0
    spoil: Spoil | None = None
    tell: Callable[[str], object] = lambda _: None


class TransactionRun:
    """One run; also the listener of its producer."""

    def __init__(self, options: TransactionOptions, *, clock: Clock) -> None:
        self._options = options
        self._clock = clock
        self._story = Story()
        self._foreign = 0
        self._checks_max = 0

    # The listener: `execute` in the demo's thread, `check` in the producer's.

    def execute(self, message: TransactionMessage, arg: Any) -> LocalState | None:
        """Note the id; the local transaction never says what became of it."""
        self._story.ids[arg] = message.transaction_id
        return LocalState.UNKNOWN

    def check(self, message: TransactionMessage) -> LocalState | None:
        """Answer by the message's number."""
        run, number = _read(message.body)
        if run != self._options.run:
            return answer_of(number)
        return self._story.check(number, message.check_times)

    # The run.

    def execute_run(self) -> TransactionReport:
        """Send, be asked, consume, decide, and judge.

        Raises:
            ClientError: The node is not there, refuses, or went away.
            NodeTooPatient: Its checks take too long for a demo.
        """
        options, story = self._options, self._story
        limit = self._limit_seconds()
        started = self._clock.monotonic()
        with (
            TransactionProducer(options.producer, PRODUCER_GROUP, self, resends=0, check_linger_ms=1000) as producer,
            Consumer(options.consumer, GROUP, linger_ms=_LINGER_MS) as consumer,
        ):
            for number in range(MESSAGES):
                body = json.dumps({"run": options.run, "number": number}).encode()
                producer.send_in_transaction(OutgoingMessage(topic=TOPIC, body=body, key=f"transfer-{number}"), number)
            options.tell(f"{MESSAGES} halves sent; every execute answered unknown")
            self._consume(consumer, lambda: story.answered and story.arrived, limit)
            options.tell(f"checks committed {len(story.committed)} and rolled back {len(story.rolled_back)}")
            self._consume(consumer, self._all_discarded, limit)
            options.tell(f"{len(story.given_up)} stayed unknown for {self._checks_max} checks and were discarded")
            self._decide()
            self._consume(consumer, lambda: story.arrived, 0.0)
            seconds = self._clock.monotonic() - started
            for _ in range(_CALM_PULLS):
                self._pull(consumer)
        spoil(story, options.spoil)
        return TransactionReport(
            run=options.run,
            story=story,
            checks=judge(story, checks_max=self._checks_max),
            foreign=self._foreign,
            seconds=seconds,
        )

    def _limit_seconds(self) -> float:
        """How long it takes at the node until a half is discarded. Raises NodeTooPatient."""
        settings = self._options.transactions({"limit": 0}).settings
        assert settings, "the node is open: it has taken the producer's halves"
        self._checks_max = settings.checks_max
        seconds = (settings.timeout_ms + settings.interval_ms * self._checks_max) / 1000
        if seconds > SECONDS_MAX:
            text = (
                f"this node gives a transaction up after {seconds:,.0f} s: {self._checks_max} checks, "
                f"{settings.interval_ms:,} ms apart. The demo needs a node that does so within {SECONDS_MAX:.0f} s, "
                "as the sample configuration does (transactionTimeOut, transactionCheckInterval, transactionCheckMax)"
            )
            raise NodeTooPatient(text)
        return seconds

    def _consume(self, consumer: Consumer, finished: Callable[[], bool], seconds: float) -> None:
        """Pull until something is so, or has not come to be so for as long as it may take."""
        deadline = self._clock.monotonic() + seconds + self._options.patience_seconds
        while not finished() and self._clock.monotonic() < deadline:
            self._pull(consumer)

    def _pull(self, consumer: Consumer) -> None:
        for message in consumer.pull():
            run, number = _read(message.body)
            if run == self._options.run:
                self._story.deliver(number)
            else:
                self._foreign += 1
            consumer.ack(message)

    def _all_discarded(self) -> bool:
        """Whether all that stay unknown are among the discarded; notes them."""
        story = self._story
        numbers = {story.ids[number]: number for number in unknown_numbers()}
        start: int | None = 0
        while start is not None and len(story.given_up) < len(numbers):
            answer = self._options.transactions({"state": "discarded", "group": PRODUCER_GROUP, "from": start})
            for each in answer.transactions:
                if each.id in numbers:
                    story.given_up[numbers[each.id]] = each.checks
            start = answer.next
        return len(story.given_up) == len(numbers)

    def _decide(self) -> None:
        """Commit every other one that was discarded and roll the rest back; then ask for the opposite, in vain."""
        story, change = self._story, self._options.change
        for place, number in enumerate(sorted(story.given_up)):
            action, other = ("commit", "rollback") if place % 2 == 0 else ("rollback", "commit")
            story.decide(number, action)
            problem = change(story.ids[number], action)
            if problem:
                self._options.tell(f"message {number}: {problem}")
            else:
                story.refused[number] = change(story.ids[number], other)
                self._options.tell(f"message {number}: {action} by hand")


def _read(body: bytes) -> tuple[str, int]:
    """Run and number of a message; ("", 0) of one that no demo sent."""
    try:
        value = json.loads(body)
        return str(value["run"]), int(value["number"])
    except (ValueError, KeyError, TypeError):
        return "", 0
