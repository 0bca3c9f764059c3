"""Sends to topics of Kafka clusters and of the store, side by side, over the wire and in virtual time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from proxy.services.kafka.sends import KAFKA_FAILURES, KAFKA_LATE, KAFKA_WAITING
from proxy.services.publishing import SENDS_REFUSED
from proxy.services.topic_port import MESSAGES_SENT
from pyddmq.codes import Repeat, ResultCode
from pyddmq.testing import SimDisk, VirtualLoop
from tests.fakes.memory.producer import Answer, MemoryProducer, murmur2
from tests.hostile.sim import HostileWorld, Raw
from tests.insides import opened_of
from tests.integration.keyed_tools import NAME
from tests.integration.keyed_tools import key as unique_key
from tests.simulation.wire import producer_idl
from upstream.kafka.headers import decode
from upstream.kafka.link import KafkaFailure, KafkaPartition, KafkaRecord

YAML = """
node: {segmentBytes: 1048576, maxMessageBytes: 500000, producerPort: 9613, consumerPort: 9713%s}
kafka:
  main: {bootstrapServers: "127.0.0.1:1"}
  other: {bootstrapServers: "127.0.0.1:2"}
topics:
  orders: {queues: 2}
  invoices: {brokerCluster: main%s}
  events: {brokerCluster: other}
  nowhere: {brokerCluster: main}
  closed: {brokerCluster: main, enabled: false}
"""
OK, TIMEOUT = ResultCode.OK, ResultCode.FAIL_TIMEOUT
UUID = "14f22520-ad72-11e7-91be-6ee54da579e3"
DOWN = KafkaFailure("LEADER_NOT_AVAILABLE", "no leader")


class World(HostileWorld):
    """A node with two clusters, whose producers answer as they are told."""

    def __init__(self, node: str = "", topic: str = "", *, disk: SimDisk | None = None) -> None:
        self.clusters: dict[str, MemoryProducer] = {}
        super().__init__(YAML % (node, topic), disk=disk, kafka=self._make)
        self.main = self.producer("main")
        self.other = self.producer("other")
        self.client = self.connect("producer")

    def _make(self, loop: VirtualLoop, cluster: str) -> MemoryProducer:
        topics = {"invoices": 3} if cluster == "main" else {"events": 1}
        made = self.clusters[cluster] = MemoryProducer(loop, topics)
        return made

    def producer(self, cluster: str) -> MemoryProducer:
        """That of a cluster, as the node has it."""
        self.node.parts.kafka.producer_of(cluster)
        return self.clusters[cluster]

    def write(self, method: str, client: Raw | None = None, **arguments: Any) -> None:
        """Call, without waiting for the answer."""
        client = client or self.client
        client.transport.write(client.codec.call(method, 1, **arguments))

    def answers(self, client: Raw | None = None) -> list[Any]:
        """Answers that came since the last time."""
        client = client or self.client
        replies = [each.value for each in client.replies]
        client.replies.clear()
        return replies

    def send(self, message: Any, *, timeout_ms: int = 1000, seconds: float = 0.5) -> Any:
        """Send one, and return its Result."""
        self.write("sendSync", message=message, timeout=timeout_ms)
        self.run(seconds)
        [answer] = self.answers()
        return answer

    def batch(self, messages: Sequence[Any], *, receipts: bool = True, seconds: float = 0.5) -> Any:
        """Send some together, and return their Result."""
        self.write("sendBatchSync", messages=list(messages), receipts=receipts)
        self.run(seconds)
        [answer] = self.answers()
        return answer

    def count(self, name: str, *labels: str) -> int:
        """What a series counts."""
        return self.node.runtime.metrics.counter(name, *labels).value

    def stored(self, queue_id: int = 0) -> int:
        """Messages of a queue of the store."""
        return opened_of(self.node).store.topics["orders"].queues[queue_id].max_offset


def message(topic: str, body: bytes = b"x", **more: Any) -> Any:
    """A message without a choice of its queue."""
    return producer_idl.Message(**{"topic": topic, "body": body, "partitionId": -1, "hashId": 0, **more})


def numbered(number: int, topic: str = "invoices", **more: Any) -> Any:
    """A message of a deduplicating producer, whose body is its number."""
    return message(topic, b"%d" % number, uniqKey=unique_key(number).decode(), **more)


def test_send_to_kafka_is_answered_with_partition_and_offset() -> None:
    """Key, tag and properties are the record's key and headers, and so is the id."""
    world = World()
    result = world.send(message("invoices", b"body", key="K", tags="T", properties={"a": "1"}))
    assert result.code == OK
    partition = murmur2(b"K") % 3
    assert (result.qid, result.offset) == (f"main_{partition}", 0)
    [record] = world.main.records[KafkaPartition("invoices", partition)]
    assert (record.key, record.value) == (b"K", b"body")
    assert decode(record) == ("K", "T", {"UNIQ_KEY": result.msgId, "a": "1"})
    assert len(result.msgId) == 32
    assert world.count(MESSAGES_SENT, "invoices") == 1
    assert world.count(KAFKA_WAITING, "main") == 0


def test_batch_of_both_is_answered_once_all_is_stored() -> None:
    """Each goes where its topic stands; the receipts are in the order of the messages."""
    world = World()
    world.main.answer = lambda topic, body: Answer(seconds=None)
    world.write(
        "sendBatchSync",
        messages=[
            message("orders", b"0", partitionId=1),
            message("invoices", b"1", partitionId=2),
            message("events", b"2"),
            message("orders", b"3", partitionId=1),
            message("orders", b"4", delayLevel=1),
        ],
        receipts=True,
    )
    world.run(0.5)
    assert world.answers() == []
    assert world.stored(1) == 2
    world.main.release()
    world.run(0.1)
    [result] = world.answers()
    assert result.code == OK
    places = [(each.qid, each.offset) for each in result.receipts]
    assert places == [
        ("pyddmq_broker-0_1", 0),
        ("main_2", 0),
        ("other_0", 0),
        ("pyddmq_broker-0_1", 1),
        ("", -1),
    ]
    assert len({each.msgId for each in result.receipts}) == 5


def test_slow_cluster_holds_nobody_else_up() -> None:
    """Sends of other connections to the store and to another cluster are answered meanwhile."""
    world = World()
    world.main.answer = lambda topic, body: Answer(seconds=None)
    slow = world.connect("producer")
    for _ in range(50):
        world.write("sendAsync", slow, message=message("invoices"))
    world.run(0.1)
    assert world.send(message("orders")).code == OK
    assert world.send(message("events")).code == OK
    assert world.answers(slow) == []
    assert world.count(KAFKA_WAITING, "main") == 50
    world.main.release()
    world.run(0.1)
    assert [each.code for each in world.answers(slow)] == [OK] * 50


@pytest.mark.parametrize(
    ("failure", "code"),
    [
        (KafkaFailure("UNKNOWN_TOPIC_OR_PART", "?"), ResultCode.FAIL_TOPIC_NOT_EXIST),
        (KafkaFailure("MSG_SIZE_TOO_LARGE", "?"), ResultCode.FAIL_ILLEGAL_MSG),
        (KafkaFailure("TOPIC_AUTHORIZATION_FAILED", "?"), ResultCode.FAIL_TOPIC_NOT_ALLOWED),
        (KafkaFailure("QUEUE_FULL", "?"), ResultCode.FAIL_REFUSED_BY_RATE_LIMITER),
        (KafkaFailure("MSG_TIMED_OUT", "?", unknown=True), TIMEOUT),
        (KafkaFailure("TRANSPORT", "?", unknown=True), TIMEOUT),
        (KafkaFailure("TRANSPORT", "?"), ResultCode.FAIL_NO_PRODUCER_FOR_CLUSTER),
        (KafkaFailure("NOT_ENOUGH_REPLICAS", "?"), ResultCode.FAIL_NO_PRODUCER_FOR_CLUSTER),
        (KafkaFailure("PURGE_QUEUE", "?"), ResultCode.FAIL_SERVER_SHUTDOWN),
        (KafkaFailure("SOMETHING_NEW", "?"), ResultCode.FAIL_UNKNOWN),
    ],
    ids=lambda each: each.code if isinstance(each, KafkaFailure) else each.name,
)
@pytest.mark.parametrize("refused", [False, True])
def test_failures_have_the_codes_of_ddmq(failure: KafkaFailure, code: ResultCode, refused: bool) -> None:
    """When the record is handed over, and in its report; the sentence names the cluster."""
    world = World()
    world.main.answer = lambda topic, body: Answer(failure=failure, refused=refused)
    for result in (world.send(message("invoices")), world.batch([message("invoices"), message("invoices")])):
        assert result.code == code
        assert "cluster main" in result.msg
    assert world.count(KAFKA_FAILURES, "main", failure.code.lower()) == (2 if refused else 3)
    assert world.count(SENDS_REFUSED, str(int(code))) == 3
    assert world.count(MESSAGES_SENT, "invoices") == 0


def test_message_that_never_left_the_node_is_known_not_to_be_stored() -> None:
    """At the timeout of its send it is withdrawn: another node, or the same, may take it again."""
    world = World()
    world.main.answer = lambda topic, body: Answer(unsent=True)
    result = world.send(message("invoices"), timeout_ms=300)
    assert result.code == ResultCode.FAIL_NO_PRODUCER_FOR_CLUSTER
    assert "NOT_SENT" in result.msg
    assert world.main.unsent == []
    assert world.count(KAFKA_WAITING, "main") == 0
    assert world.count(KAFKA_FAILURES, "main", "not_sent") == 1


def test_batch_of_which_a_part_has_left_may_be_stored() -> None:
    """What is under way is not known, so the code is that of the whole."""
    world = World()
    world.main.answer = lambda topic, body: Answer(seconds=None) if body == b"left" else Answer(unsent=True)
    assert world.batch([message("invoices", b"left"), message("invoices")], seconds=12).code == TIMEOUT
    assert world.main.unsent == []
    world.main.release()
    world.run(1)
    assert world.count(KAFKA_LATE, "main", "stored") == 1
    assert world.count(KAFKA_WAITING, "main") == 0


def test_topic_that_kafka_has_not_is_unknown_and_is_asked_for_again() -> None:
    """For a while without the cluster, which would be asked for each send; then, or once it is there, anew."""
    world = World()
    assert world.send(message("nowhere")).code == ResultCode.FAIL_TOPIC_NOT_EXIST
    taken = len(world.main.asked)
    result = world.send(message("nowhere"))
    assert result.code == ResultCode.FAIL_TOPIC_NOT_EXIST
    assert len(world.main.asked) == taken
    world.main.topics["nowhere"] = 1
    assert world.send(message("nowhere")).code == OK
    assert world.send(message("closed")).code == ResultCode.FAIL_TOPIC_NOT_ALLOWED
    assert world.send(message("none-such")).code == ResultCode.FAIL_TOPIC_NOT_EXIST


@pytest.mark.parametrize(
    ("more", "partition"),
    [
        ({"partitionId": 0}, 0),
        ({"partitionId": 7}, 1),
        ({"hashId": 5}, 2),
        ({"hashId": -5}, 2),
        ({"hashId": -(2**63)}, 2),
        ({"key": "order-7"}, murmur2(b"order-7") % 3),
        ({"key": "order-7", "hashId": 4}, 1),
    ],
)
def test_partition_is_chosen_as_a_queue_is(more: dict[str, Any], partition: int) -> None:
    """A number that there is, whatever was asked (R96, W80); the key's is that of Java's client."""
    world = World()
    assert world.send(message("invoices", **more)).qid == f"main_{partition}"


def test_random_partition_is_one_that_there_is() -> None:
    """Asked for by -2, with and without a key, which does not choose then."""
    world = World()
    found = {world.send(message("invoices", partitionId=-2, key="k"), seconds=0.05).qid for _ in range(30)}
    assert found == {"main_0", "main_1", "main_2"}


def test_partition_of_a_topic_that_is_not_known_is_refused() -> None:
    """Nothing is guessed: with code 21 the next try goes to another node."""
    world = World()
    result = world.send(message("nowhere", partitionId=1))
    assert result.code == ResultCode.FAIL_NO_PRODUCER_FOR_CLUSTER
    assert "cluster main" in result.msg


@pytest.mark.parametrize("vector", [(b"21", -973932308), (b"foobar", -790332482), (b"abc", 479470107)])
def test_murmur2_is_javas(vector: tuple[bytes, int]) -> None:
    """The vectors of Kafka's own test."""
    data, value = vector
    assert murmur2(data) == value & 0x7FFF_FFFF


def test_delays_timers_and_transactions_are_refused() -> None:
    """With the codes of a message that its topic's type does not take, and nothing is stored of a batch."""
    world = World()
    later = "delays and transactions on cluster main are not configured; add `waiting: {}` to kafka.main"
    kinds: list[dict[str, Any]] = [{"delayLevel": 2}, {"deliverAtMs": 1_700_000_000_000}, {"delayMs": 1000}]
    for more in kinds:
        result = world.send(message("invoices", **more))
        assert result.code == ResultCode.FAIL_TOPIC_IS_NOT_DELAY
        assert later in result.msg
    delayed = producer_idl.DelayMessage(
        topic="invoices", body=b"x", action=1, dmsgtype=2, timestamp=1_600_000_000, uuid=UUID
    )
    world.write("sendDelaySync", delayMessage=delayed, timeout=1000)
    world.write("sendHalfSync", message=message("invoices"), producerGroup="shop", timeout=1000)
    world.run(0.5)
    refused = world.answers()
    assert [each.code for each in refused] == [ResultCode.FAIL_TOPIC_IS_NOT_DELAY] * 2
    assert all(later in each.msg for each in refused)
    assert world.batch([message("orders"), message("invoices", delayMs=5)]).code == ResultCode.FAIL_TOPIC_IS_NOT_DELAY
    assert world.stored() + world.stored(1) == 0
    assert world.main.asked == []


def test_rates_hold_for_kafka_topics() -> None:
    """MaxTps of the topic; a refused send gives its tokens back."""
    world = World("", ", maxTps: 2, limiterFailureRetryInterval: 0")
    world.main.answer = lambda topic, body: Answer(failure=DOWN, refused=True)
    for _ in range(5):
        assert world.send(message("invoices"), seconds=0.01).code == ResultCode.FAIL_NO_PRODUCER_FOR_CLUSTER
    world.main.answer = lambda topic, body: Answer()
    codes = [world.send(message("invoices"), seconds=0.01).code for _ in range(3)]
    assert codes == [OK, OK, ResultCode.FAIL_REFUSED_BY_RATE_LIMITER]


def test_send_is_answered_at_its_timeout_and_what_comes_later_is_counted() -> None:
    """Code 12; the client is told in its time, and the record may be there all the same."""
    world = World()
    world.main.answer = lambda topic, body: Answer(seconds=2.0)
    result = world.send(message("invoices"), timeout_ms=300, seconds=0.35)
    assert result.code == TIMEOUT
    assert world.count(MESSAGES_SENT, "invoices") == 0
    world.run(2.0)
    assert world.answers() == []
    assert world.count(KAFKA_LATE, "main", "stored") == 1
    assert world.count(MESSAGES_SENT, "invoices") == 1
    assert world.count(SENDS_REFUSED, "12") == 1


@pytest.mark.parametrize("method", ["sendAsync", "sendBatchSync"])
def test_send_without_a_timeout_is_answered_in_ten_seconds(method: str) -> None:
    """R98: as long as DDMQ's call of a broker."""
    world = World()
    world.main.answer = lambda topic, body: Answer(seconds=None)
    arguments = {"messages": [message("invoices")]} if method == "sendBatchSync" else {"message": message("invoices")}
    world.write(method, **arguments)
    world.run(9.9)
    assert world.answers() == []
    world.run(0.2)
    assert [each.code for each in world.answers()] == [TIMEOUT]


def test_batch_that_is_stored_in_part_says_so() -> None:
    """Code 12, since some of it is stored: a client must not take it for refused."""
    world = World()
    world.main.answer = lambda topic, body: Answer(failure=DOWN if body == b"1" else None)
    result = world.batch([message("orders", b"0"), message("invoices", b"1"), message("invoices", b"2")])
    assert result.code == TIMEOUT
    assert "message 1 of 3" in result.msg
    assert "2 of the batch are stored" in result.msg
    assert world.count(SENDS_REFUSED, "12") == 1


def test_bytes_for_a_hanging_cluster_are_bounded() -> None:
    """A share of memoryMax for each: then code 15 for it, and nothing for others."""
    world = World(", memoryMax: 67108864")
    world.main.answer = lambda topic, body: Answer(seconds=None)
    clients = [world.connect("producer") for _ in range(30)]
    for client in clients:
        world.write("sendAsync", client, message=message("invoices", bytes(400_000)))
        world.run(0.05)
    codes = [each.code for client in clients for each in world.answers(client)]
    assert set(codes) == {ResultCode.FAIL_REFUSED_BY_RATE_LIMITER}
    assert (len(clients) - len(codes)) * 400_000 <= 67_108_864 // 4 // 2
    assert world.send(message("orders", bytes(400_000))).code == OK
    assert world.send(message("events", bytes(400_000))).code == OK
    world.main.release()
    world.run(0.2)
    assert [each.code for client in clients for each in world.answers(client)] == [OK] * (len(clients) - len(codes))
    assert world.node.parts.memory.budget.used < 1_000_000


def test_stop_waits_for_what_is_under_way() -> None:
    """Within the drain; the answer leaves before the connection ends."""
    world = World()
    world.main.answer = lambda topic, body: Answer(seconds=3.0)
    world.write("sendAsync", message=message("invoices"))
    world.run(0.1)
    stopping = world.loop.create_task(world.node.stop(drain_seconds=10))
    world.run(2.5)
    assert not stopping.done()
    world.run(1.0)
    assert [each.code for each in world.answers()] == [OK]


_codes = st.sampled_from([None, "LEADER_NOT_AVAILABLE", "MSG_SIZE_TOO_LARGE", "MSG_TIMED_OUT", "NEW"])
_any_answer = st.builds(
    lambda seconds, code, stored, refused: Answer(
        seconds,
        None if code is None else KafkaFailure(code, "?", unknown=stored),
        None if code is None else stored,
        refused and code is not None,
    ),
    st.sampled_from([0.0, 0.01, 0.3, 15.0, None]),
    _codes,
    st.booleans(),
    st.booleans(),
)
_answers = st.sampled_from([Answer(), Answer(0.01, DOWN), Answer(0.0, DOWN, refused=True)]) | _any_answer


@settings(max_examples=30, deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from(["orders", "invoices", "events"]), _answers), min_size=1, max_size=6),
    st.booleans(),
)
@example([("orders", Answer()), ("invoices", Answer(0.01, DOWN))], False)
@example([("invoices", Answer()), ("events", Answer(0.01, DOWN))], True)
def test_each_message_of_a_batch_has_one_outcome(plan: list[tuple[str, Answer]], with_numbers: bool) -> None:
    """Whatever the clusters answer, and when: one reply; each message is stored, refused, or late, and counted so."""
    world = World()
    by_body = {b"%d" % number: answer for number, (_, answer) in enumerate(plan)}
    world.main.answer = world.other.answer = lambda topic, body: by_body[body]
    messages = [
        numbered(number, topic) if with_numbers else message(topic, b"%d" % number)
        for number, (topic, _) in enumerate(plan)
    ]
    result = world.batch(messages, seconds=20)
    world.main.release()
    world.other.release()
    world.run(1)
    assert world.answers() == []
    topics = ("orders", "invoices", "events")
    published = sum(world.count(MESSAGES_SENT, topic) for topic in topics)
    refused = sum(world.count(SENDS_REFUSED, str(int(code))) for code in ResultCode)
    late = sum(world.count(KAFKA_LATE, cluster, "stored") for cluster in ("main", "other"))
    assert published + refused - late == len(plan)
    assert (result.code == OK) == (refused == 0)
    in_kafka = len(world.main.bodies("invoices")) + len(world.other.bodies("events"))
    reported = [answer for topic, answer in plan if topic != "orders" and answer.failure is None]
    assert in_kafka >= published - world.stored() - world.stored(1)
    if result.code not in (OK, TIMEOUT, ResultCode.FAIL_UNKNOWN):
        # What is refused so is nowhere: its producer may give its number to another message.
        assert in_kafka == world.stored() + world.stored(1) == 0
    if result.code == OK:
        assert len(reported) == sum(topic != "orders" for topic, _ in plan)
    assert world.node.parts.kafka.unsettled is False
    assert all(world.count(KAFKA_WAITING, cluster) == 0 for cluster in ("main", "other"))


# Numbered messages


def test_repeat_has_the_first_receipt_and_is_not_sent_again() -> None:
    """Also in a batch with messages of the store, and beside new ones."""
    world = World()
    first = world.send(numbered(0, key="k"))
    again = world.send(numbered(0, key="k"))
    assert (again.code, again.repeat) == (OK, Repeat.FIRST_RECEIPT)
    assert (again.msgId, again.qid, again.offset) == (first.msgId, first.qid, first.offset)
    messages = [numbered(1), numbered(2, "orders"), numbered(3)]
    receipts = world.batch(messages).receipts
    result = world.batch(messages)
    assert (result.code, result.repeat, result.receipts) == (OK, Repeat.FIRST_RECEIPT, receipts)
    assert sorted(world.main.bodies("invoices")) == [b"0", b"1", b"3"]
    assert world.stored() + world.stored(1) == 1


def test_new_messages_of_a_batch_that_was_stored_in_part_have_their_receipts() -> None:
    """Each has where it is, beside the first receipts of the others."""
    world = World()
    first = world.send(numbered(0, "orders"))
    result = world.batch([numbered(0, "orders"), numbered(1, "orders")])
    assert (result.code, result.repeat) == (OK, Repeat.FIRST_RECEIPT)
    old, new = result.receipts
    assert (old.msgId, old.qid, old.offset) == (first.msgId, first.qid, first.offset)
    assert new.offset == world.stored(int(new.qid[-1])) - 1
    assert world.stored() + world.stored(1) == 2


def test_repeat_of_what_is_under_way_waits_for_it() -> None:
    """On another connection, as after a lost one; the record is sent once."""
    world = World()
    world.main.answer = lambda topic, body: Answer(seconds=None)
    world.write("sendSync", message=numbered(0), timeout=5000)
    world.run(0.1)
    other = world.connect("producer")
    world.write("sendSync", other, message=numbered(0), timeout=5000)
    world.run(0.1)
    assert world.answers(other) == []
    world.main.release()
    world.run(0.1)
    [first], [again] = world.answers(), world.answers(other)
    assert (again.code, again.repeat, again.offset) == (OK, Repeat.FIRST_RECEIPT, first.offset)
    assert world.main.bodies("invoices") == [b"0"]


def test_repeat_of_what_is_not_decided_is_answered_at_its_timeout() -> None:
    """With code 12, since the first may be stored; what holds its frame is free again."""
    world = World()
    world.main.answer = lambda topic, body: Answer(seconds=None)
    world.write("sendSync", message=numbered(0), timeout=5000)
    world.run(0.1)
    other = world.connect("producer")
    world.run(0.1)
    held = [each.held_bytes for _, each in world.node.connections()]
    world.write("sendSync", other, message=numbered(0), timeout=500)
    world.run(1)
    assert [each.code for each in world.answers(other)] == [TIMEOUT]
    assert [each.held_bytes for _, each in world.node.connections()] == held


def test_adds_of_one_turn_that_cannot_be_stored_are_all_refused() -> None:
    """The second has the id of the first, and waits for what becomes of it."""
    disk = SimDisk()
    world = World(disk=disk)
    due_s = world.node.parts.seams.clock.wall_ms() // 1000 + 60
    late = producer_idl.DelayMessage(topic="orders", body=b"x", action=1, dmsgtype=2, uuid=UUID, timestamp=due_s)
    disk.fail("sync", path_part="/commitlog/")
    for _ in range(2):
        world.write("sendDelaySync", delayMessage=late, timeout=1000)
    world.run(0.5)
    assert [each.code for each in world.answers()] == [ResultCode.FAIL_UNKNOWN] * 2


def test_repeat_of_what_was_late_has_its_receipt() -> None:
    """Answered with code 12 at its timeout, and stored: what is sent again meanwhile waits, and learns of it."""
    world = World()
    world.main.answer = lambda topic, body: Answer(seconds=1.0)
    assert world.send(numbered(0), timeout_ms=100).code == TIMEOUT
    again = world.send(numbered(0), timeout_ms=2000, seconds=1)
    assert (again.code, again.repeat) == (OK, Repeat.FIRST_RECEIPT)
    assert world.send(numbered(0)).repeat == Repeat.FIRST_RECEIPT
    assert world.main.bodies("invoices") == [b"0"]


def test_message_behind_one_that_failed_is_a_gap_until_it_came_again() -> None:
    """As the store has it: nothing is stored before what its producer numbered lower."""
    world = World()
    world.main.answer = lambda topic, body: Answer(failure=DOWN)
    assert world.send(numbered(0)).code == ResultCode.FAIL_NO_PRODUCER_FOR_CLUSTER
    world.main.answer = lambda topic, body: Answer()
    for topic in ("invoices", "orders"):
        result = world.send(numbered(1, topic))
        assert (result.code, result.repeat) == (ResultCode.FAIL_GAP, Repeat.GAP)
    # The number is free: it may be another message's, in the store, too.
    assert world.send(numbered(0, "orders")).code == OK
    assert world.send(numbered(1)).code == OK
    assert world.main.bodies("invoices") == [b"1"]


def test_failure_before_what_is_stored_already_is_undecided() -> None:
    """Its producer may not give the number to another message: the next one is taken, and would answer for it."""
    world = World()
    world.main.answer = lambda topic, body: Answer(0.2 if body == b"0" else 0.01, DOWN if body == b"0" else None)
    for number in range(3):
        world.write("sendSync", message=numbered(number), timeout=1000)
    world.run(0.5)
    assert [each.code for each in world.answers()] == [TIMEOUT, OK, OK]
    assert world.send(numbered(3)).code == ResultCode.FAIL_GAP
    assert world.send(numbered(1)).repeat == Repeat.FIRST_RECEIPT
    world.main.answer = lambda topic, body: Answer()
    assert world.send(numbered(0)).code == OK
    assert world.send(numbered(3)).code == OK


def test_rest_of_a_batch_is_sent_when_it_comes_again() -> None:
    """What is stored of it, here and there, is not stored again."""
    world = World()
    messages = [numbered(0, "orders"), numbered(1), numbered(2), numbered(3, "orders")]
    world.main.answer = lambda topic, body: Answer(failure=DOWN if body == b"1" else None)
    assert world.batch(messages).code == TIMEOUT
    world.main.answer = lambda topic, body: Answer()
    result = world.batch(messages)
    assert result.code == OK
    assert [each.qid.rpartition("_")[0] for each in result.receipts] == [
        "pyddmq_broker-0", "main", "main", "pyddmq_broker-0"
    ]  # fmt: skip
    assert sorted(world.main.bodies("invoices")) == [b"1", b"2"]
    assert world.stored() + world.stored(1) == 2


def test_after_a_clean_restart_a_repeat_is_known_without_its_place() -> None:
    """The checkpoint has the numbers; where their records are is not kept, since a node keeps nothing of Kafka's."""
    disk = SimDisk()
    world = World(disk=disk)
    assert world.send(numbered(0)).code == OK
    assert world.send(numbered(1, "orders")).code == OK
    stopping = world.loop.create_task(world.node.stop(drain_seconds=1))
    world.loop.run(stopping.done, seconds=30)
    stopping.result()
    again = World(disk=disk)
    result = again.send(numbered(0))
    assert (result.code, result.repeat, result.msgId) == (OK, Repeat.OLDER, unique_key(0).decode())
    assert again.main.asked == []
    assert again.send(numbered(2)).code == OK


def test_other_producers_are_not_held_back_by_a_hole() -> None:
    """Holes are a producer's own."""
    world = World()
    world.main.answer = lambda topic, body: Answer(failure=DOWN)
    assert world.send(numbered(0)).code != OK
    world.main.answer = lambda topic, body: Answer()
    name = NAME[:2] + b"AA" + NAME[4:]
    assert world.send(message("invoices", uniqKey=unique_key(0, name).decode())).code == OK


def record_of(records: dict[KafkaPartition, list[KafkaRecord]]) -> KafkaRecord:
    """The one that there is."""
    [[record]] = records.values()
    return record


def test_binary_header_comes_back_from_a_property() -> None:
    """What a consumer of Kafka's records was given by D58 and sends on is the same header again."""
    world = World()
    sent = {"trace;base64": "/w==", "hop#2": "b", "hop": "a"}
    assert world.send(message("invoices", properties=sent)).code == OK
    headers = record_of(world.main.records).headers
    assert ("trace", b"\xff") in headers
    assert [value for name, value in headers if name == "hop"] == [b"a", b"b"]
