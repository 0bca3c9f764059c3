"""What `upstream.kafka.link` says of members, of the Kafka in memory: what `tests/kafka` has of a real one.

By the rules of either coordinator.
"""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from pyddmq.testing import ManualClock, ManualScheduler
from tests.fakes.kafka.client import SimClient
from tests.fakes.kafka.cluster import SimKafka
from tests.fakes.kafka.member import SimMember
from tests.kafka_world import Heard
from upstream.kafka.link import Commit, KafkaFailure, KafkaPartition, TopicSubscription

HERE = KafkaPartition("t", 0)


class World:
    """A cluster with one topic, and members of one group."""

    def __init__(self, protocol: str, partitions: int = 2) -> None:
        self.clock = ManualClock()
        self.scheduler = ManualScheduler(self.clock)
        self.kafka = SimKafka(
            Random(1), clock=self.clock, scheduler=self.scheduler, session_seconds=6, gaps=0.0, protocol=protocol
        )
        self.kafka.partitions("t", partitions)

    def join(self, heard: Heard | None = None) -> tuple[SimMember, Any]:
        """Return a member that has had a second to join."""
        member, listener = SimClient(self.kafka).member("g", "node"), heard or Heard()
        listener.member = member  # type: ignore[assignment]
        member.join(listener, [TopicSubscription("t")])
        self.scheduler.advance(1)
        return member, listener

    def commit(self, member: SimMember, *commits: Commit) -> KafkaFailure | None:
        """Commit, and return how it ended."""
        ended: list[KafkaFailure | None] = []
        member.commit(commits, ended.append)
        self.scheduler.advance(1)
        return ended[0]


@pytest.fixture(params=["classic", "consumer"])
def world(request: pytest.FixtureRequest) -> World:
    """By each coordinator."""
    return World(request.param)


def test_assignment_has_what_was_committed_with_its_text(world: World) -> None:
    """Of what is there; another member finds it."""
    for body in (b"0", b"1", b"2"):
        world.kafka.append(HERE, None, body)
    member, heard = world.join()
    first = heard.given[HERE]
    assert (first.low, first.high, first.committed, first.metadata) == (0, 3, None, "")
    assert world.commit(member, Commit("t", 0, 2, "text")) is None
    left: list[bool] = []
    member.leave(lambda: left.append(True))
    world.scheduler.advance(1)
    assert left
    _, again = world.join()
    assert (again.given[HERE].committed, again.given[HERE].metadata) == (2, "text")
    assert again.values(0) == [b"2"]


def test_nothing_is_read_before_it_is_asked_for(world: World) -> None:
    """A pause holds; reading from elsewhere tells nothing of before."""
    for number in range(100):
        world.kafka.append(HERE, None, b"%d" % number)
    member, heard = world.join(Heard(reads=False))
    assert not heard.got
    member.read_from(HERE, 90)
    world.scheduler.advance(1)
    assert [each.offset for each in heard.got] == list(range(90, 100))
    assert heard.ended[HERE] == 100
    member.pause([HERE])
    world.kafka.append(HERE, None, b"more")
    world.scheduler.advance(1)
    assert len(heard.got) == 10
    member.resume([HERE])
    member.read_from(HERE, 99)
    world.scheduler.advance(1)
    assert heard.values(0)[10:] == [b"99", b"more"]


def test_end_is_told_beyond_markers_and_open_transactions_are_waited_for(world: World) -> None:
    """What was taken back is not told, and nothing behind what is open."""
    world.kafka.append(HERE, None, b"kept", transaction="one")
    world.kafka.append(HERE, None, b"taken back", transaction="two")
    world.kafka.append(HERE, None, b"behind")
    _, heard = world.join()
    assert (heard.got, heard.given[HERE].high, heard.given[HERE].readable_end) == ([], 3, 0)
    world.kafka.end("one", commit=True)
    world.scheduler.advance(1)
    assert heard.values(0) == [b"kept"]
    world.kafka.end("two", commit=False)
    world.scheduler.advance(1)
    assert heard.values(0) == [b"kept", b"behind"]
    assert heard.ended[HERE] == 5


def test_compaction_leaves_gaps(world: World) -> None:
    """The last of each key is left, in its order."""
    for number in range(10):
        world.kafka.append(HERE, b"k%d" % (number % 2), b"%d" % number)
    assert len(world.kafka.partition(HERE).compact()) == 8
    _, heard = world.join()
    assert heard.values(0) == [b"8", b"9"]
    assert heard.ended[HERE] == 10


def test_second_member_gets_its_share_and_commits_meanwhile_count(world: World) -> None:
    """A revoke waits for its end, and the new owner finds what was committed before; a late commit does not count."""
    one, heard = world.join(Heard(holds=True))
    assert len(heard.given) == 2
    _, other = world.join()
    world.scheduler.advance(3)
    [place] = next(places for what, places in heard.loud if what == "revoked")
    assert world.commit(one, Commit("t", place.partition, 0, "meanwhile")) is None
    assert not other.given
    heard.open.pop()()
    world.scheduler.advance(3)
    assert other.given[place].metadata == "meanwhile"
    refused = world.commit(one, Commit("t", place.partition, 0, "late"))
    assert refused is not None
    assert refused.fenced
    assert world.kafka.group("g").committed[place] == (0, "meanwhile")


def test_commits_wait_behind_a_join_of_the_classic_protocol(world: World) -> None:
    """It is answered when the session of one that died is over; a broker reads no further from a connection before."""
    first, _ = world.join()
    second, _ = world.join()
    second.kill()
    world.join()
    ended: list[KafkaFailure | None] = []
    [place] = [each for each in (HERE, KafkaPartition("t", 1)) if each in first.claims]
    first.commit([Commit(*place, 1, "")], ended.append)
    world.scheduler.advance(1)
    assert ended == ([] if world.kafka.protocol == "classic" else [None])
    world.scheduler.advance(8)
    assert ended == [None]


def test_member_that_gets_nothing_is_told_so() -> None:
    """By an assignment of nothing."""
    for protocol in ("classic", "consumer"):
        world = World(protocol, partitions=1)
        world.join()
        _, other = world.join()
        world.scheduler.advance(3)
        assert ("assigned", None) in other.loud
        assert not other.given


def test_member_that_is_silent_loses_all_and_hears_of_it_last(world: World) -> None:
    """Others have it by then; what it commits then is refused, and it joins again."""
    one, heard = world.join()
    one.paused = True
    _, other = world.join()
    world.scheduler.advance(12)
    assert len(other.given) == 2
    assert not heard.lost_places()
    one.wake()
    world.scheduler.advance(8)
    assert heard.lost_places()
    assert (len(heard.given), len(other.given)) == (1, 1)


def test_cut_link_holds_what_is_under_way_and_a_reset_one_loses_it(world: World) -> None:
    """A commit arrives late, or may have arrived although nobody heard of it."""
    one, _ = world.join()
    link = vars(one)["_link"]
    ended: list[KafkaFailure | None] = []
    link.cut()
    one.commit([Commit("t", 0, 0, "late")], ended.append)
    world.scheduler.advance(2)
    assert ended == []
    link.heal()
    world.scheduler.advance(1)
    assert ended == [None]
    link.cut()
    one.commit([Commit("t", 0, 0, "lost")], ended.append)
    world.scheduler.advance(1)
    link.reset()
    link.heal()
    world.scheduler.advance(1)
    assert ended[1] is not None
    assert ended[1].unknown


def test_producer_sends_again_and_stores_once(world: World) -> None:
    """In order, over answers that are lost; and gives up in the end."""
    client = SimClient(world.kafka)
    producer = client.producer()
    ended: list[KafkaFailure | None] = []
    for number in range(20):
        producer.produce("t", 0, None, b"%d" % number, (), lambda failure, *_: ended.append(failure))
        world.scheduler.advance(0.01)
        if number % 3 == 0:
            client.link.reset()
    world.scheduler.advance(2)
    assert ended == [None] * 20
    assert [each.value for each in world.kafka.readable(HERE, 0, 99)] == [b"%d" % number for number in range(20)]
    world.kafka.stop()
    producer.produce("t", 0, None, b"never", (), lambda failure, *_: ended.append(failure))
    world.scheduler.advance(40)
    last = ended[-1]
    assert last is not None
    assert (last.code, last.unknown) == ("MSG_TIMED_OUT", True)
