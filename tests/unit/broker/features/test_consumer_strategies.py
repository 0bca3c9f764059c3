"""Allocation strategies: every queue to exactly one client, with the shares that RocketMQ computes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as some

from broker.consumer.strategies import (
    Configured,
    ConsistentHash,
    MachineRoom,
    MachineRoomNearby,
    Strategy,
    averagely,
    by_circle,
)
from broker.consumer.tags import TagExpression
from broker.format.java import tags_code
from broker.format.properties import encode_properties
from broker.queues.message_queue import MessageQueue, queue_names

ROOMS = MachineRoomNearby(
    averagely,
    room_of_broker=lambda queue: queue.broker_name.partition("@")[0],
    room_of_client=lambda client: client.partition("@")[0],
)
WHOLE: list[Strategy] = [averagely, by_circle, ConsistentHash(), ROOMS, MachineRoom(frozenset({"r0", "r1", "r2"}))]
clients_some = some.sets(
    some.builds("r{}@{}".format, some.integers(0, 3), some.integers(0, 40)), min_size=1, max_size=12
).map(sorted)
queues_some = some.sets(
    some.builds(
        MessageQueue,
        some.sampled_from(["t", "u"]),
        some.builds("r{}@b".format, some.integers(0, 2)),
        some.integers(0, 40),
    ),
    max_size=40,
).map(sorted)


@pytest.mark.parametrize("strategy", WHOLE)
@given(queues=queues_some, clients=clients_some)
def test_every_queue_goes_to_exactly_one_client(
    strategy: Strategy, queues: list[MessageQueue], clients: list[str]
) -> None:
    """The shares of all clients together are the queues, none twice; a stranger gets none."""
    shares = [strategy(client, queues, clients) for client in clients]

    assert sorted(queue for share in shares for queue in share) == queues
    assert strategy("stranger", queues, clients) == []


@pytest.mark.parametrize("strategy", [averagely, by_circle])
@given(queues=queues_some, clients=clients_some)
def test_shares_differ_by_one_at_most(strategy: Strategy, queues: list[MessageQueue], clients: list[str]) -> None:
    """Nobody has two queues more than another."""
    sizes = [len(strategy(client, queues, clients)) for client in clients]

    assert max(sizes) - min(sizes) <= 1


def ids(strategy: Strategy, count: int, clients: str, broker: str = "b") -> list[list[int]]:
    """Queue ids of each client, one letter per client."""
    queues = queue_names("t", broker, range(count))
    return [[queue.queue_id for queue in strategy(client, queues, list(clients))] for client in clients]


def test_average_gives_blocks_and_the_first_ones_more() -> None:
    """8 over 3 is 3, 3, 2 in blocks (RocketMQ: AllocateMessageQueueAveragely); more clients than queues are idle."""
    assert ids(averagely, 8, "abc") == [[0, 1, 2], [3, 4, 5], [6, 7]]
    assert ids(averagely, 2, "abc") == [[0], [1], []]


def test_circle_deals_one_by_one() -> None:
    """RocketMQ: AllocateMessageQueueAveragelyByCircle."""
    assert ids(by_circle, 8, "abc") == [[0, 3, 6], [1, 4, 7], [2, 5]]


def test_machine_room_takes_named_rooms_and_deals_the_rest() -> None:
    """RocketMQ: AllocateMessageQueueByMachineRoom: blocks of the quotient, then one each of what is left."""
    assert ids(MachineRoom(frozenset({"r1"})), 8, "abc", "r1@b") == [[0, 1, 6], [2, 3, 7], [4, 5]]
    assert ids(MachineRoom(frozenset({"r2"})), 8, "abc", "r1@b") == [[], [], []]
    assert ids(MachineRoom(frozenset({"r1"})), 8, "abc", "r1") == [[], [], []]


def test_nearby_rooms_keep_their_queues_and_share_the_abandoned() -> None:
    """A room's queues stay there while it has a client; those of an empty room go round."""
    queues = [*queue_names("t", "x@b", range(2)), *queue_names("t", "y@b", range(2))]

    assert ROOMS("x@1", queues, ["x@1", "y@1"]) == queues[:2]
    assert ROOMS("x@1", queues, ["x@1", "x@2"]) == [queues[0], queues[2]]


def test_configured_lists_are_obeyed_without_what_is_not_there() -> None:
    """A list that names a missing queue does not make one."""
    [first, second] = queue_names("t", "b", [0, 9])

    assert Configured({"a": [first, second]})("a", queue_names("t", "b", range(4)), ["a"]) == [first]


def test_consistent_hash_moves_only_the_queues_of_who_left() -> None:
    """The other clients keep all they had."""
    queues, clients = queue_names("t", "b", range(64)), list("abcde")
    ring = ConsistentHash()
    before = {each: ring(each, queues, clients) for each in clients}
    after = {each: ring(each, queues, list("abde")) for each in "abde"}

    assert before["c"]
    assert all(set(before[each]) <= set(after[each]) for each in "abde")


def test_ring_hash_is_the_head_of_the_md5_sum() -> None:
    """MD5("a") begins with 0cc175b9: an unsigned number, as Java makes it."""
    from broker.consumer.strategies import _ring_hash

    assert _ring_hash("a") == 0x0CC175B9
    assert str(MessageQueue("t", "b", 3)) == "MessageQueue [topic=t, brokerName=b, queueId=3]"


@pytest.mark.parametrize(
    ("text", "wanted"),
    [("*", ["a", "b", ""]), ("", ["a", "b", ""]), ("a", ["a"]), ("a || b", ["a", "b"]), (" a||c", ["a"])],
)
def test_tag_expressions_choose_by_code_and_text(text: str, wanted: list[str]) -> None:
    """`A || B`, `*` and nothing at all; both steps agree for tags without colliding codes."""
    tags = TagExpression(text)

    def passes(tag: str) -> bool:
        return tags.may_match(tags_code(tag.encode())) and tags.matches(encode_properties({"TAGS": tag}))

    assert [tag for tag in ("a", "b", "") if passes(tag)] == wanted


def test_colliding_tags_are_told_apart_by_their_text() -> None:
    """`Aa` and `BB` have one Java hash; the second is not handed out for the first."""
    tags = TagExpression("Aa")

    assert tags.may_match(tags_code(b"BB"))
    assert not tags.matches(encode_properties({"TAGS": "BB"}))


def test_an_expression_without_a_tag_is_refused() -> None:
    """`||` alone would match nothing for ever."""
    with pytest.raises(ValueError, match="invalid tag expression"):
        TagExpression(" || ")
