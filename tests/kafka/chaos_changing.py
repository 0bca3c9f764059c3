"""The topic of a chaos run that changes: deleted and created again, cut off at its beginning, given partitions.

A plain producer and producers of the nodes send to it all the while. What a change deletes need not arrive. Of the
rest a journal is written at the end and judged by `tests.histories.rules`: an offset names one message, each is
answered, and of a key in a partition in order.

How many came again is counted and not judged: the topic beside it, which does not change, is there for that.
"""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from pyddmq import Producer
from pyddmq.client.errors import ClientError
from tests.histories.journal import Journal
from tests.histories.rules import judge
from tests.kafka.fencing import batches, last_of_each_producer, take_over
from tests.kafka.topics import add_partitions, delete_records, delete_topic, make_topic, plain_producer, topic_names
from tests.patient import until

NAME = "changes"
KEYS, PARTITIONS, PARTITIONS_MAX = 40, 4, 8
PAUSE_SECONDS = 0.04
FLUSH_SECONDS = 20
NODE_TIMEOUT_MS = 10_000
FENCING_KEY, FENCING = "f", 7
"""More records than a node sends at once, so that none of its next batch is taken for one of them."""


@dataclass(slots=True)
class Sent:
    """One message: where it is, in which life of the topic, and when it was handed out and answered first.

    A life of -1: it is not known whether, or in which, it was stored.
    """

    key: str
    life: int = -1
    partition: int = -1
    offset: int = -1
    taken: float | None = None
    done: float | None = None


@dataclass(slots=True)
class ChangesVerdict:
    """What came of it."""

    sent: int = 0
    acknowledged: int = 0
    by_nodes: int = 0
    refused: int = 0
    deleted: int = 0
    again: int = 0
    faults: list[str] = field(default_factory=list)

    @property
    def passed(self) -> bool:
        """Whether nothing is wrong."""
        return not self.faults


class ChangesAccount:
    """What was sent, handed out and answered of the topic; called by many threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._sent: list[Sent] = []
        self._verdict = ChangesVerdict()
        self._begins: dict[int, int] = defaultdict(int)
        self.life = 0

    def sent(self, key: str) -> int:
        """Return the number of a message that is about to be sent."""
        with self._lock:
            self._sent.append(Sent(key))
            return len(self._sent) - 1

    def stored(self, number: int, life: int, partition: int, offset: int, *, by_node: bool = False) -> None:
        """Note an acknowledgement; a life of before may have stored it, or the one that followed."""
        with self._lock:
            self._verdict.acknowledged += 1
            self._verdict.by_nodes += by_node
            if life == self.life:
                each = self._sent[number]
                each.life, each.partition, each.offset = life, partition, offset

    def refused(self) -> None:
        """Note a send that was not acknowledged."""
        with self._lock:
            self._verdict.refused += 1

    def created_again(self) -> None:
        """Note that the topic has a new life: what was in the one before need not arrive."""
        with self._lock:
            self.life += 1
            self._begins.clear()

    def begins_at(self, partition: int, offset: int) -> None:
        """Note that what is before an offset was deleted."""
        with self._lock:
            self._begins[partition] = max(self._begins[partition], offset)

    def take(self, number: int, at: float) -> None:
        """Note a hand-out."""
        with self._lock:
            each = self._sent[number]
            self._verdict.again += each.done is not None
            each.taken = at if each.taken is None else each.taken

    def done(self, number: int, at: float) -> None:
        """Note what a client is about to answer with success."""
        with self._lock:
            each = self._sent[number]
            each.done = at if each.done is None else each.done

    @property
    def left(self) -> int:
        """Messages that have still to arrive."""
        with self._lock:
            return sum(each.done is None and not self._is_deleted(each) for each in self._sent)

    def _is_deleted(self, each: Sent) -> bool:
        return each.life != self.life or each.offset < self._begins[each.partition]

    def verdict(self) -> ChangesVerdict:
        """Judge all of it."""
        with self._lock:
            found = self._verdict
            found.sent = len(self._sent)
            found.deleted = sum(each.life >= 0 and self._is_deleted(each) for each in self._sent)
            found.faults = judge(self._journal().ordered())
            return found

    def _journal(self) -> Journal:
        """Write down what was not deleted. A key has an order in each partition, whose number changes."""
        journal, group = Journal(), "consumers"
        journal.add("group", 0.0, group=group, timeout=0.0)
        left = [(number, each) for number, each in enumerate(self._sent) if not self._is_deleted(each)]
        for number, each in left:
            keys = {group: f"{each.key} in {each.partition}"}
            journal.add("send", 0.0, id=number, who="senders", topic=NAME, keys=keys, due=None)
        for number, each in left:
            place, at = [NAME, str(each.partition), each.offset], {"life": each.life, "group": group, "who": "client"}
            journal.add("sent", 0.0, id=number, result="stored", place=place)
            journal.add("stored", 0.0, id=number, place=place, at=each.offset, log=str(each.partition))
            if each.taken is not None:
                taken: dict[str, Any] = {"place": place, "copy": place, "id": number, "late": False, **at}
                turn = round(each.taken * 1_000_000)
                journal.add("get", each.taken, turn, turn=turn, asked=turn, asked_t=each.taken, **taken)
            if each.done is not None:
                turn = round(each.done * 1_000_000)
                answer: dict[str, Any] = {"place": place, "success": True, **at}
                journal.add("ack", each.done, turn, turn=turn, **answer)
        return journal


class Changes:
    """The topic, its senders, and what is done to it.

    Args:
        address: Of Kafka.
        drawn: Draws.
        producers: Addresses of the producer ports of the nodes that run now.
    """

    def __init__(self, address: str, drawn: Random, producers: Callable[[], list[str]]) -> None:
        make_topic(address, NAME, PARTITIONS, {})
        self.account = ChangesAccount()
        self._address = address
        self._drawn = drawn
        self._producers = producers
        settings = {"enable.idempotence": True, "message.timeout.ms": 60_000, "log_level": 0}
        # Kafka creates topics by itself here: only this class may do so.
        self._producer = plain_producer(address, **settings, **{"allow.auto.create.topics": False})
        self._partitions = PARTITIONS
        self._stored: dict[int, int] = {}
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._threads = [threading.Thread(target=each, daemon=True) for each in (self._send, self._send_by_nodes)]
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Send nothing more."""
        self._over.set()
        for thread in self._threads:
            thread.join(60)
        self._producer.flush(FLUSH_SECONDS)

    # What happens to it

    def create_again(self) -> None:
        """Delete the topic and create it again: its offsets begin at 0, below what groups have committed."""
        with self._lock:
            self._producer.flush(FLUSH_SECONDS)
            with suppress(Exception):
                delete_topic(self._address, NAME)
            until(lambda: NAME not in topic_names(self._address), "the topic to be deleted")
            self.account.created_again()
            time.sleep(self._drawn.choice((0, 0, 3)))
            make_topic(self._address, NAME, PARTITIONS, {})
            self._partitions = PARTITIONS
            self._stored.clear()

    def delete_records(self) -> None:
        """Delete the beginning of a partition, up to its end at times."""
        with self._lock:
            stored = {each: end for each, end in self._stored.items() if end}
            if not stored:
                return
            partition = self._drawn.choice(sorted(stored))
            before = self._drawn.choice((stored[partition], self._drawn.randrange(stored[partition] + 1)))
            self.account.begins_at(partition, before)
            delete_records(self._address, NAME, partition, before)

    def add_partitions(self) -> None:
        """Give the topic another partition."""
        with self._lock:
            if self._partitions < PARTITIONS_MAX:
                self._partitions += 1
                add_partitions(self._address, NAME, self._partitions)

    def fence_producer(self, folder: Path) -> bool:
        """Take the producer id of the node away that sent last; whether one had sent since its id was taken.

        The records that take its place are messages as all others.
        """
        with self._lock:
            found = [
                (batch.at_ms, partition, batch)
                for partition in range(self._partitions)
                for batch in last_of_each_producer(batches(folder, NAME, partition))
                if batch.has_key(b"n")
            ]
            if not found:
                return False
            _, partition, batch = max(found)
            numbers = [self.account.sent(FENCING_KEY) for _ in range(FENCING)]
            values = [f"{FENCING_KEY} {number}".encode() for number in numbers]
            offset = take_over(self._address, NAME, partition, batch, key=FENCING_KEY.encode(), values=values)
            for place, number in enumerate(numbers):
                self.account.stored(number, self.account.life, partition, offset + place)
            return True

    # Senders

    def _send(self) -> None:
        while not self._over.wait(PAUSE_SECONDS):
            with self._lock:
                key = f"k{self._drawn.randrange(KEYS)}"
                number = self.account.sent(key)
                heard = self._heard(number, self.account.life)
                with suppress(BufferError):
                    self._producer.produce(NAME, key=key.encode(), value=f"{key} {number}".encode(), on_delivery=heard)
                # (The client has once raised a SystemError here, of a topic that was gone.)
                with suppress(SystemError):
                    self._producer.poll(0)

    def _heard(self, number: int, life: int) -> Callable[[Any, Any], None]:
        def heard(error: Any, message: Any) -> None:
            if error is not None:
                self.account.refused()
                return
            self.account.stored(number, life, message.partition(), message.offset())
            if life == self.account.life:
                end = self._stored.get(message.partition(), 0)
                self._stored[message.partition()] = max(end, message.offset() + 1)

        return heard

    def _send_by_nodes(self) -> None:
        drawn = Random("nodes")
        while not self._over.wait(PAUSE_SECONDS):
            addresses = self._producers()
            if not addresses:
                continue
            with (
                suppress(ClientError, OSError),
                Producer(drawn.choice(addresses), timeout_ms=NODE_TIMEOUT_MS) as producer,
            ):
                for _ in range(50):
                    # Of its own keys: two producers send in no order.
                    key = f"n{drawn.randrange(KEYS)}"
                    number, life = self.account.sent(key), self.account.life
                    try:
                        receipt = producer.send(NAME, f"{key} {number}".encode(), key=key)
                    except (ClientError, OSError):
                        self.account.refused()
                        raise
                    partition = int(receipt.qid.rpartition("_")[2])
                    self.account.stored(number, life, partition, receipt.offset, by_node=True)
                    if self._over.wait(PAUSE_SECONDS):
                        return


def said(verdict: ChangesVerdict) -> str:
    """One line for people."""
    return (
        f"topic that changes: {verdict.sent:,} messages, {verdict.acknowledged:,} acknowledged, "
        f"{verdict.by_nodes:,} of them by nodes, {verdict.refused:,} refused, "
        f"{verdict.deleted:,} deleted: {len(verdict.faults)} faults of the history, {verdict.again:,} again"
    )
