"""Transactions that RocketMQ began: both forms of its op records, its put-backs, and the offsets it finds of ours."""

from __future__ import annotations

from broker.log.decisions import prepared_offset_of
from broker.log.put import Put
from broker.query import at_offset
from broker.queues.offsets import ConsumerOffsets
from broker.store import Store
from broker.transaction.names import GROUP as OFFSETS_GROUP
from broker.transaction.names import HALF_TOPIC, OP_TOPIC, State
from broker.transaction.ops import HalfReference, members_of
from broker.transaction.outcomes import End
from pyddmq.testing import ManualClock, SimDisk
from tests.integration.store_tools import HOST, ROOT, open_store
from tests.integration.transaction_tools import START_MS, TOPIC, Broker, broker


def half_block(number: int, *, times: int = 0) -> bytes:
    """Properties of a half as RocketMQ's client and broker write them."""
    own = f"TRANSACTION_CHECK_TIMES\x01{times}\x02" if times else ""
    return (
        f"TRAN_MSG\x01true\x02PGROUP\x01g\x02REAL_TOPIC\x01{TOPIC}\x02REAL_QID\x010\x02UNIQ_KEY\x01{number:032X}\x02"
        f"__transactionId__\x01{number:032X}\x02WAIT\x01true\x02{own}"
    ).encode()


def put(store: Store, topic: str, body: bytes, block: bytes, *, replaces: int | None = None, flags: int = 0) -> int:
    """Append a record as RocketMQ makes it; return its commit-log offset."""
    prepared = 0 if replaces is None else prepared_offset_of(replaces)
    record = Put(store.topics[topic], 0, body, block, unique_key=b"given", prepared_offset=prepared, sys_flag=flags)
    [position] = store.append([record], born_ms=START_MS, born_host=HOST)
    store.flush()
    return position.physical


def theirs(*, half_offset: int, op_offset: int) -> SimDisk:
    """Five halves: 0 committed, 1 rolled back, 2 and 4 undecided, 3 committed without an op record yet."""
    disk = SimDisk()
    store = open_store(disk, clock=ManualClock(START_MS))
    for name in (TOPIC, HALF_TOPIC, OP_TOPIC):
        store.create_topic(name, 1, system=name != TOPIC)
    places = [put(store, HALF_TOPIC, b"%d" % n, half_block(n, times=n if n == 4 else 0)) for n in range(5)]
    put(store, TOPIC, b"0", half_block(0), replaces=places[0], flags=8)
    put(store, OP_TOPIC, b"0", b"TAGS\x01d\x02")
    put(store, OP_TOPIC, b"1,", b"TAGS\x01d\x02")
    put(store, TOPIC, b"3", half_block(3), replaces=places[3], flags=8)
    store.close()
    offsets = ConsumerOffsets.open(ROOT, disk=disk, clock=ManualClock(START_MS))
    offsets.set(OFFSETS_GROUP, HALF_TOPIC, 0, half_offset)
    offsets.set(OFFSETS_GROUP, OP_TOPIC, 0, op_offset)
    offsets.save()
    return disk


def handles(made: Broker) -> list[str]:
    """Handles of all halves."""
    found = []
    for offset in range(5):
        half = made.transactions.halves.read(offset)
        found.append(f"{offset}-{half.physical}-{half.transaction_id}")
    return found


def test_op_bodies_of_both_forms_are_read() -> None:
    """One offset without a comma, many with one each, and what is not a number; letters are ours."""
    assert members_of(b"17", b"TAGS\x01d\x02") == [HalfReference(17, None)]
    assert members_of(b"1,22,3,", b"") == [HalfReference(1, None), HalfReference(22, None), HalfReference(3, None)]
    assert members_of(b"1,x,,3,", b"") == [HalfReference(1, None), HalfReference(3, None)]
    assert [each.fate for each in members_of(b"1,2,", b"__PYDDMQ_DECISIONS\x01cr\x02")] == ["c", "r"]


def test_what_rocketmq_decided_is_decided() -> None:
    """Also where its op record was still in its memory; what it had not decided is checked, its count going on."""
    made = broker(theirs(half_offset=0, op_offset=0), ManualClock(START_MS))
    assert made.visible() == [b"0", b"3"]
    assert made.undecided == 2
    zero, one, two, three, four = handles(made)
    for handle, decided in ((zero, State.COMMIT), (one, State.ROLLBACK), (three, State.COMMIT)):
        outcome = made.end(handle, State.ROLLBACK)
        assert (outcome.decided, outcome.resolved) == (decided, decided is State.ROLLBACK)
    made.scheduler.advance(7)
    checks = {check.body: check for check in made.transactions.fetch_checks("g", 9)}
    assert {body: check.times for body, check in checks.items()} == {b"2": 1, b"4": 5}
    assert made.end(checks[b"4"].handle, State.COMMIT, from_check=True).end is End.OK
    assert made.roll_back(two).end is End.OK
    assert made.commit(four).end is End.ALREADY_SAME
    message = at_offset(made.store, TOPIC, 0, 2)
    assert message.properties == {"UNIQ_KEY": f"{4:032X}", "WAIT": "true"}


def test_op_record_that_was_missing_is_written() -> None:
    """RocketMQ looks at nothing else: without it, it would commit the third half again."""
    made = broker(theirs(half_offset=0, op_offset=0), ManualClock(START_MS))
    op = at_offset(made.store, OP_TOPIC, 0, 2)
    assert (op.body(), op.properties["__PYDDMQ_DECISIONS"]) == (b"3,", "c")


def test_rocketmqs_position_settles_what_lies_below() -> None:
    """It put half 2 back or gave it up: whatever it did, it went on from there."""
    made = broker(theirs(half_offset=3, op_offset=2), ManualClock(START_MS))
    assert made.undecided == 1
    made.scheduler.advance(7)
    assert [check.body for check in made.transactions.fetch_checks("g", 9)] == [b"4"]


def test_rocketmq_finds_where_to_begin() -> None:
    """The half offset is the lowest undecided one; no op record below the op offset has a member above that."""
    made = broker(segment_bytes=65536)
    first = [made.half(b"%d" % number) for number in range(4)]
    for handle in (first[1], first[3], first[0]):
        made.commit(handle)
    made.close()
    offsets = ConsumerOffsets.open(ROOT, disk=made.disk, clock=made.clock)
    assert offsets.get(OFFSETS_GROUP, HALF_TOPIC, 0) == 2
    # The op records of 1, 3 and 0, in this order: the first is below the half, the second is not.
    assert offsets.get(OFFSETS_GROUP, OP_TOPIC, 0) == 1
    made = broker(made.disk, made.clock, segment_bytes=65536)
    made.roll_back(first[2])
    made.close()
    offsets = ConsumerOffsets.open(ROOT, disk=made.disk, clock=made.clock)
    assert offsets.get(OFFSETS_GROUP, HALF_TOPIC, 0) == 4
    assert offsets.get(OFFSETS_GROUP, OP_TOPIC, 0) == 4


def put_back_and_killed() -> SimDisk:
    """RocketMQ put 2 and 4 again, twice and once, and committed the copy of 4; its kill left the offsets of before."""
    disk = theirs(half_offset=0, op_offset=0)
    store = open_store(disk, clock=ManualClock(START_MS), seed=1)
    put(store, HALF_TOPIC, b"2", half_block(2, times=1))
    copy = put(store, HALF_TOPIC, b"4", half_block(4, times=5))
    put(store, HALF_TOPIC, b"2", half_block(2, times=2))
    put(store, TOPIC, b"4", half_block(4), replaces=copy, flags=8)
    store.close()
    return disk


def test_what_rocketmq_put_again_before_a_kill_is_one_transaction() -> None:
    """Copies name nothing: the places that they were put again from are found by the transaction's id."""
    made = broker(put_back_and_killed(), ManualClock(START_MS))
    assert (made.undecided, made.transactions.halves.states.position) == (1, 7)
    made.scheduler.advance(6)
    [check] = made.transactions.fetch_checks("g", 9)
    assert (check.body, check.times) == (b"2", 3)
    assert made.commit(check.handle).resolved
    assert made.visible() == [b"0", b"3", b"4", b"2"]
    made = made.again(without=("pyddmq/transactions.json",))
    assert made.undecided == 0


def test_old_places_of_what_rocketmq_put_again_are_named_in_op_records() -> None:
    """An undecided half below keeps RocketMQ's offset where it is: it would look at them again."""
    made = broker(put_back_and_killed(), ManualClock(START_MS))
    made.scheduler.advance(1)
    made.close()
    store = broker(made.disk, made.clock).store
    queue = store.topics[OP_TOPIC].queues[0]
    named = set()
    for offset in range(queue.min_offset, queue.max_offset):
        message = at_offset(store, OP_TOPIC, 0, offset)
        block = "".join(f"{name}\x01{value}\x02" for name, value in message.properties.items()).encode()
        named |= {member.offset for member in members_of(message.body(), block)}
    assert named == {0, 1, 2, 3, 4, 5, 6}
