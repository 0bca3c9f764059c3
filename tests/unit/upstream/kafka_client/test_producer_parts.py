"""The producer over a librdkafka that only remembers: fatal errors, limits of sizes, topics that vanish."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from pyddmq.testing.manual_time import ManualClock
from tests.conftest import need_module
from tests.kafka_world import Loop
from upstream.kafka.link import KafkaFailure
from upstream.kafka_client.package import KafkaUnusable
from upstream.kafka_client.producer import LibrdkafkaProducer

SMALL = 100


class Error:
    """One of librdkafka's."""

    def __init__(self, name: str, *, fatal: bool = False) -> None:
        self._name, self._fatal = name, fatal

    def name(self) -> str:
        """Its name."""
        return self._name

    def str(self) -> str:
        """Its text."""
        return f"said {self._name}"

    def fatal(self) -> bool:
        """Whether the producer is over."""
        return self._fatal


class Message:
    """What a report says of a record."""

    def partition(self) -> int:
        """Of it."""
        return 0

    def offset(self) -> int:
        """Of it."""
        return 7


class Producer:
    """Collects records; `poll` reports them as one batch."""

    def __init__(self, package: Any, error_cb: Callable[[Any], None], *, alone: bool) -> None:
        self.package, self.error_cb, self.alone = package, error_cb, alone
        self.batch: list[tuple[bytes, Callable[[Any, Any], None]]] = []
        self.batches: list[list[bytes]] = []
        self.fatal: Error | None = None
        self.raises: Exception | None = None
        self.settings: Any = None
        self.lock = threading.Lock()

    def produce(self, topic: str, *, value: bytes, on_delivery: Callable[[Any, Any], None], **_: Any) -> None:
        """Take it, unless it is over."""
        if self.fatal is not None:
            raise self.package.KafkaException(Error("_FATAL"))
        with self.lock:
            self.batch.append((value, on_delivery))

    def poll(self, seconds: float) -> int:
        """Report."""
        if self.raises is not None:
            raise self.raises
        if self.fatal is not None:
            self.error_cb(self.fatal)
            return 0
        with self.lock:
            batch, self.batch = self.batch, []
        for part in [[each] for each in batch] if self.alone else [batch] if batch else []:
            values = [value for value, _ in part]
            self.batches.append(values)
            error = self.settings.answer(values)
            for _, report in part:
                report(error, Message())
        return 0

    def purge(self) -> None:
        """Report what is held."""
        with self.lock:
            batch, self.batch = self.batch, []
        for _, report in batch:
            report(Error("_PURGE_QUEUE"), Message())

    def flush(self, seconds: float) -> int:
        """Report."""
        return self.poll(seconds)


class Settings:
    """Makes them."""

    cluster = "main"
    sent_seconds_max = 30.0

    def __init__(self, package: Any) -> None:
        self.package = package
        self.made: list[Producer] = []
        self.answer: Callable[[list[bytes]], Error | None] = lambda _: None

    def hide(self, text: str) -> str:
        """Nothing is secret."""
        return text

    def give_password(self, client: object) -> None:
        """It has one."""

    def producer(self, client_id: str, *, alone: bool = False, error_cb: Callable[[Any], None]) -> Producer:
        """Return one."""
        self.made.append(Producer(self.package, error_cb, alone=alone))
        self.made[-1].settings = self
        return self.made[-1]


class Queries:
    """Answers at once how many partitions a topic has; without an answer it keeps question and what to call instead."""

    def __init__(self) -> None:
        self.found: int | KafkaFailure | None = 1
        self.question: Callable[[], Callable[[], None]] | None = None
        self.unanswered: Callable[[], None] | None = None
        self.asked = 0

    def submit(self, question: Callable[[], Callable[[], None]], unanswered: Callable[[], None] | None = None) -> None:
        """Ask."""
        self.asked += 1
        if self.found is None:
            self.question, self.unanswered = question, unanswered
        else:
            question()()


class World:
    """One producer."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        package = need_module("confluent_kafka", "pip install 'pyddmq[kafka]'")
        self.queries = Queries()
        monkeypatch.setattr("upstream.kafka_client.producer.partitions_of", lambda consumer, topic: self.queries.found)
        self.loop, self.clock, self.settings = Loop(), ManualClock(), Settings(package)
        self.broken: list[KafkaFailure] = []
        self.ended: list[str] = []
        parts: Any = {"settings": self.settings, "queries": self.queries, "loop": self.loop, "clock": self.clock}
        self.producer = LibrdkafkaProducer("node", **parts, query_consumer=lambda: None, broken=self.broken.append)

    def send(self, value: bytes) -> None:
        """Send one."""

        def done(failure: KafkaFailure | None, partition: int, offset: int) -> None:
            unknown = " unknown" if failure is not None and failure.unknown else ""
            self.ended.append("stored" if failure is None else failure.code + unknown)

        self.producer.produce("t", 0, None, value, (), done)

    def until(self, condition: Callable[[], object], what: str) -> None:
        """Turn."""
        self.loop.until(condition, what)


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("CLUSTER_AUTHORIZATION_FAILED", "CLUSTER_AUTHORIZATION_FAILED"),
        ("OUT_OF_ORDER_SEQUENCE_NUMBER", "FATAL unknown"),
    ],
)
def test_fatal_error_ends_the_producer_and_says_why(code: str, said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was under way is reported by that reason; denied is known not to be stored."""
    world = World(monkeypatch)
    made = world.settings.made[0]
    with made.lock:
        made.fatal = Error(code, fatal=True)
        made.batch.append((b"x", lambda *_: None))
    world.until(lambda: world.broken, "the word that it ended")
    assert world.broken[0].code == code
    with pytest.raises(KafkaFailure, match=code):
        world.send(b"x")


@pytest.mark.parametrize("kind", ["cause", "other"])
def test_error_that_comes_as_another_exception_ends_the_producer(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A fatal error goes up through a callback, which seems to raise it; what no error explains ends it, too."""
    world = World(monkeypatch)
    made = world.settings.made[0]
    world.producer.partitions("t")
    raises = SystemError("a callback returned a result with an exception set")
    if kind == "cause":
        raises.__cause__ = world.settings.package.KafkaException(Error("INVALID_PRODUCER_EPOCH", fatal=True))
    with made.lock:
        made.raises = raises
    world.until(lambda: world.broken, "the word that it ended")
    assert world.broken[0].code == ("INVALID_PRODUCER_EPOCH" if kind == "cause" else "FAIL")
    with pytest.raises(KafkaFailure, match=world.broken[0].code):
        world.send(b"x")


@pytest.mark.parametrize("ends", ["closed", "broken"])
def test_record_that_waits_for_its_topic_when_the_producer_ends_is_reported(
    ends: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The cluster's answer comes afterwards, and nothing sends it any more."""
    world = World(monkeypatch)
    world.queries.found = None
    world.send(b"x")
    if ends == "closed":
        world.producer.close(0)
    else:
        world.settings.made[0].raises = SystemError("a callback returned a result with an exception set")
        world.until(lambda: world.broken, "the word that it ended")
    world.queries.found = 1
    assert world.queries.question is not None
    world.queries.question()()
    assert world.ended == ["DESTROY" if ends == "closed" else "FAIL unknown"]


def test_exception_of_an_error_that_is_not_fatal_ends_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """The next poll may be well."""
    world = World(monkeypatch)
    made = world.settings.made[0]
    world.producer.partitions("t")
    made.raises = world.settings.package.KafkaException(Error("_TRANSPORT"))
    world.send(b"x")
    made.raises = None
    world.until(lambda: world.ended, "the record")
    assert (world.ended, world.broken) == (["stored"], [])


def test_batch_that_is_too_large_is_sent_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each record that fits by itself is stored, and one that does not is refused; later ones go alone at once."""
    world = World(monkeypatch)
    world.settings.answer = lambda values: (
        Error("MSG_SIZE_TOO_LARGE") if sum(len(each) for each in values) > SMALL else None
    )
    world.producer.partitions("t")
    for size in (60, 60, 60, 120):
        world.send(bytes(size))
    world.until(lambda: len(world.ended) == 4, "all of them")
    assert sorted(world.ended) == ["MSG_SIZE_TOO_LARGE", "stored", "stored", "stored"]
    world.ended.clear()
    world.send(bytes(60))
    world.send(bytes(60))
    world.until(lambda: len(world.ended) == 2, "both")
    assert world.ended == ["stored", "stored"]
    [_, alone] = world.settings.made
    assert [len(each) for batch in alone.batches[-2:] for each in batch] == [60, 60]
    world.producer.close(0)


def test_record_for_which_no_producer_can_be_made_ends_by_that_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that sends each record alone is made later, when the settings may not be usable any more."""
    world = World(monkeypatch)
    world.settings.answer = lambda values: Error("MSG_SIZE_TOO_LARGE")
    world.producer.partitions("t")

    def refused(client_id: str, **_: Any) -> Producer:
        raise KafkaUnusable("ssl.ca.location failed: No such file or directory")

    monkeypatch.setattr(world.settings, "producer", refused)
    world.send(bytes(60))
    world.until(lambda: world.ended, "the record")
    assert world.ended == ["NO_CLIENT"]
    with pytest.raises(KafkaFailure, match="No such file"):
        world.send(bytes(60))
    world.producer.close(0)


def test_topic_is_asked_for_again_after_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that was deleted is not sent to again, and not made by that."""
    world = World(monkeypatch)
    world.send(b"a")
    world.until(lambda: world.ended, "the first")
    world.settings.answer = lambda values: Error("_UNKNOWN_TOPIC")
    world.queries.found = KafkaFailure("UNKNOWN_TOPIC_OR_PART", "there is no topic t")
    world.send(b"b")
    world.until(lambda: len(world.ended) == 2, "the second")
    world.send(b"c")
    assert world.ended == ["stored", "UNKNOWN_TOPIC", "UNKNOWN_TOPIC_OR_PART"]
    assert [batch for made in world.settings.made for batch in made.batches] == [[b"a"], [b"b"]]
    world.producer.close(0)


def _unanswered(world: World) -> None:
    """Let the question for a topic end without an answer."""
    assert world.queries.unanswered is not None
    world.queries.unanswered()


@pytest.mark.parametrize("code", ["_AUTHENTICATION", "_SSL"])
def test_record_for_a_cluster_that_refuses_the_connection_ends_by_that_reason(
    code: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It never left, so it is known not to be stored, and its sender does not wait for the timeout."""
    world = World(monkeypatch)
    world.settings.made[0].error_cb(Error(code))
    world.queries.found = None
    world.send(b"x")
    assert world.ended == []
    _unanswered(world)
    assert world.ended == [code.removeprefix("_")]
    world.producer.close(0)


class Counted(bytes):
    """A body that counts how often it is compared."""

    compared = 0

    def __eq__(self, other: object) -> bool:
        Counted.compared += 1
        return super().__eq__(other)

    __hash__ = bytes.__hash__


def test_many_records_that_were_held_end_without_being_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten thousand may wait, and the loop does nothing else meanwhile."""
    world = World(monkeypatch)
    world.queries.found = None
    for number in range(300):
        world.send(Counted(b"%d" % number))
    world.clock.advance(20)
    for number in range(200):
        world.send(Counted(b"later %d" % number))
    world.clock.advance(11)
    _unanswered(world)
    assert (world.ended, Counted.compared) == (["NOT_SENT"] * 300, 0)
    world.settings.made[0].error_cb(Error("_SSL"))
    _unanswered(world)
    assert (world.ended[300:], Counted.compared) == (["SSL"] * 200, 0)
    world.producer.close(0)


def test_refusal_of_an_earlier_connection_is_no_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    """A minute later the cluster is only away: the record is kept for as long as it may wait."""
    world = World(monkeypatch)
    world.settings.made[0].error_cb(Error("_SSL"))
    world.clock.advance(61)
    world.queries.found = None
    world.send(b"x")
    _unanswered(world)
    assert world.ended == []
    world.clock.advance(31)
    _unanswered(world)
    assert world.ended == ["NOT_SENT"]
    world.producer.close(0)


def test_record_that_waits_for_its_topic_can_be_withdrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is never sent then, and nothing is reported; one that was handed to librdkafka cannot be withdrawn."""
    world = World(monkeypatch)
    ended: list[KafkaFailure | None] = []

    def done(failure: KafkaFailure | None, partition: int, offset: int) -> None:
        ended.append(failure)

    world.queries.found = None
    world.producer.produce("t", 0, None, b"held", (), done)
    assert world.producer.withdraw(done)
    assert not world.producer.withdraw(done)
    world.queries.found = 1
    world.producer.produce("u", 0, None, b"sent", (), done)
    assert not world.producer.withdraw(done)
    world.until(lambda: ended, "the report")
    _unanswered(world)
    assert ended == [None]
    assert [batch for made in world.settings.made for batch in made.batches] == [[b"sent"]]
    world.producer.close(0)
