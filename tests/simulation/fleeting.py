"""Messages that wait for a topic which comes and goes, and their own account: no end of a topic loses or repeats one.

What a topic holds when it is deleted is read at that moment, so that each message is counted over all its lives.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from broker.format.properties import parse_properties
from broker.format.record import split
from broker.store import Store
from tests.simulation.clients import LEVELS_MS, REFUSED_CODES
from tests.simulation.expired import ExpiredRecords, Record
from tests.simulation.facts import PromiseBroken
from tests.simulation.lines import Client, Link, Surroundings
from tests.simulation.stored import kept
from tests.simulation.wire import Reply, producer_codec, producer_idl

TOPIC = "fleeting"
QUEUES = 2
PAUSE_SECONDS = 0.15
WAIT_MS_MAX = 4_000
ANY_OFFSET = 1 << 62


@dataclass(slots=True)
class Fleeting:
    """One message, and what was answered about it.

    Attributes:
        in_level: It waits for a level; else for a moment.
        outcome: `stored`, `refused`, or `unknown`.
        handle: By which it is cancelled.
        asked: A cancel was asked for.
        answer: The last answer to a cancel.
    """

    in_level: bool
    outcome: str = "unknown"
    handle: str = ""
    asked: bool = False
    answer: str = ""


@dataclass(slots=True)
class FleetingAccount:
    """All that was sent, by name, and all that earlier lives of the topic held.

    Attributes:
        sent: What was sent.
        leaving: What the topic holds whose deletion is under way, by queue and offset.
    """

    sent: dict[str, Fleeting] = field(default_factory=dict)
    leaving: dict[tuple[int, int], str] = field(default_factory=dict)
    _left: dict[tuple[int, int], str] = field(default_factory=dict)

    def look(self, store: Store) -> None:
        """Read what the topic holds, as the last thing before it goes."""
        self.leaving = dict(map(_named, _present(store, None)))

    def settle(self, store: Store) -> None:
        """Keep what went if the topic did go: a deletion that was cut off may not have happened."""
        if TOPIC not in store.topics:
            self._left.update(self.leaving)
        self.leaving = {}

    def waiting(self) -> list[Fleeting]:
        """Messages that can be cancelled, in their order."""
        return [each for each in self.sent.values() if each.handle]

    def lives(self, store: Store, expired: ExpiredRecords) -> dict[tuple[int, int], str]:
        """Return what all lives of the topic held, by queue and offset, which go on from one life to the next."""
        found = dict(self._left)
        for queue_id in range(QUEUES):
            found.update(map(_named, expired.of(TOPIC, queue_id, below=ANY_OFFSET)))
        found.update(map(_named, _present(store, expired)))
        return found

    def check(self, found: Mapping[tuple[int, int], str], *, doubtful: bool) -> None:
        """Hold what came against what was answered; `doubtful`: "too late" may be said of any.

        Raises:
            PromiseBroken: 1, 7 or 8.
        """
        came = Counter(found.values())
        for name, count in came.items():
            if name not in self.sent:
                raise PromiseBroken(1, f"nobody sent {name}")
            if count > 1:
                raise PromiseBroken(1, f"{name} came {count} times: {self.sent[name]}")
        for name, each in self.sent.items():
            if each.outcome == "refused" and name in came:
                raise PromiseBroken(7, f"{name} was refused and came")
            if each.outcome == "stored" and name not in came and not each.asked:
                raise PromiseBroken(1, f"{name} is lost: {each}")
            if each.answer == "cancelled" and name in came:
                raise PromiseBroken(8, f"{name} was cancelled and came")
            if each.answer == "tooLate" and name not in came and not doubtful:
                raise PromiseBroken(8, f"it was too late to cancel {name}, and it did not come")


def _present(store: Store, expired: ExpiredRecords | None) -> list[Record]:
    topic = store.topics.get(TOPIC)
    return [record for queue in topic.queues for record in kept(store, queue, expired)] if topic is not None else []


def _named(record: Record) -> tuple[tuple[int, int], str]:
    properties = parse_properties(bytes(split(record.data)[1]))
    return (record.queue_id, record.offset), properties["name"]


class FleetingProducer(Client):
    """Sends messages that wait for the topic, one at a time."""

    def __init__(self, around: Surroundings, number: int, account: FleetingAccount) -> None:
        host = f"10.5.0.{number}"
        super().__init__(f"fleeting {number}", host, producer_codec(), around, around.producer_address)
        self.account = account
        self.number = number

    def on_connected(self) -> None:
        self._work(self.link)

    def _work(self, link: Link | None) -> None:
        if link is None or link is not self.link or self.stopped:
            return
        random = self.around.random
        name = f"{self.number}-{len(self.account.sent)}"
        in_level = random.random() < 1 / 3
        wait = {"delayLevel": random.randrange(len(LEVELS_MS)) + 1}
        if not in_level:
            wait = {"delayMs": random.randrange(1, WAIT_MS_MAX)}
        self.account.sent[name] = Fleeting(in_level)
        message = producer_idl.Message(topic=TOPIC, body=b"x" * 50, properties={"name": name}, **wait)
        self.call("sendSync", name, message=message, timeout=3_000)
        self.later(PAUSE_SECONDS, self._work, link)

    def on_reply(self, link: Link, about: str, reply: Reply, stamp: Any) -> None:
        if reply.error is not None:
            raise PromiseBroken(7, f"{reply.method} was answered with {reply.error!r}")
        sent, result = self.account.sent[about], reply.value
        self.around.counts[f"fleeting_code_{result.code}"] += 1
        if result.code == 0:
            sent.outcome, sent.handle = "stored", result.handle or result.msgId
        elif result.code in REFUSED_CODES:
            sent.outcome = "refused"
