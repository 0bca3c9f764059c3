"""Parts of a member's thread, each alone over a consumer that only remembers."""

from __future__ import annotations

from typing import Any

import pytest

from pyddmq.testing.manual_time import ManualClock
from tests.conftest import need_module
from tests.kafka_world import Loop
from upstream.kafka.cluster_facts import ClusterFacts
from upstream.kafka.link import Commit, KafkaFailure, KafkaPartition
from upstream.kafka_client.commits import AGAIN_SECONDS, UNHEARD_SECONDS, CommitRequest, ConsumerCommits
from upstream.kafka_client.member_protocol import ProtocolChoice
from upstream.kafka_client.member_thread import POLL_SECONDS, SOON_FOR_SECONDS, SOON_SECONDS, Gates, MemberThread
from upstream.kafka_client.posting import Post, Room
from upstream.kafka_client.troubles import ClientTroubles

PLACE = KafkaPartition("t", 0)


class Consumer:
    """Remembers what was asked of it."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, Any]] = []

    def commit(self, offsets: list[Any], asynchronous: bool) -> list[Any]:
        """Take it."""
        self.calls.append(("async" if asynchronous else "sync", [(each.partition, each.offset) for each in offsets]))
        return offsets

    def pause(self, places: list[Any]) -> None:
        """Take it."""
        self.calls.append(("pause", [each.partition for each in places]))

    def resume(self, places: list[Any]) -> None:
        """Take it."""
        self.calls.append(("resume", [each.partition for each in places]))


class World:
    """Commits over such a consumer."""

    def __init__(self) -> None:
        package = need_module("confluent_kafka", "pip install 'pyddmq[kafka]'")
        self.package = package
        self.errors = package.KafkaError
        self.loop = Loop()
        self.clock = ManualClock()
        self.terms: dict[KafkaPartition, int] = {PLACE: 1}
        troubles = ClientTroubles(lambda failure: None, str)
        self.commits = ConsumerCommits(Post(self.loop), troubles, self.clock, self.terms.get)
        self.consumer = self.commits.consumer = Consumer()
        self.ended: list[tuple[int, KafkaFailure | None]] = []

    def put(self, offset: int, term: int = 1) -> None:
        """Ask for a commit."""
        self.commits.put(
            CommitRequest([Commit("t", 0, offset, "")], [term], lambda said: self.ended.append((offset, said)))
        )

    def offsets(self, *numbers: int) -> list[Any]:
        """As librdkafka names them in an answer."""
        return [self.package.TopicPartition("t", 0, each) for each in numbers]

    def reported(self) -> list[tuple[int, str | None]]:
        """What was told by now."""
        self.loop.turn(0)
        return [(offset, None if said is None else said.code) for offset, said in self.ended]


@pytest.fixture
def world() -> World:
    """One."""
    return World()


def test_one_commit_is_on_its_way_and_the_latest_counts(world: World) -> None:
    """What is asked for meanwhile goes together."""
    world.put(1)
    world.commits.round()
    world.put(2)
    world.put(3)
    world.commits.round()
    assert world.consumer.calls == [("async", [(0, 1)])]
    world.commits.answered(None, [])
    world.commits.round()
    assert world.consumer.calls[1:] == [("async", [(0, 3)])]
    world.commits.answered(None, [])
    assert world.reported() == [(1, None), (2, None), (3, None)]


def test_commit_of_a_former_term_is_not_sent(world: World) -> None:
    """The partition went, and may have come back."""
    world.put(1)
    world.put(2, term=0)
    world.commits.round()
    assert world.consumer.calls == [("async", [(0, 1)])]
    assert world.reported() == [(2, "ILLEGAL_GENERATION")]
    assert world.ended[0][1] is not None
    assert world.ended[0][1].fenced


def test_commit_during_a_rebalance_is_tried_again(world: World) -> None:
    """After a moment, for as long as the partition is the member's."""
    world.put(1)
    world.commits.round()
    world.commits.answered(world.errors(world.errors.REBALANCE_IN_PROGRESS), [])
    world.commits.round()
    assert len(world.consumer.calls) == 1
    world.clock.advance(AGAIN_SECONDS)
    world.commits.round()
    assert len(world.consumer.calls) == 2
    world.commits.answered(world.errors(world.errors.ILLEGAL_GENERATION), [])
    del world.terms[PLACE]
    world.clock.advance(AGAIN_SECONDS)
    world.commits.round()
    assert len(world.consumer.calls) == 2
    assert world.reported() == [(1, "ILLEGAL_GENERATION")]


def test_unknown_member_is_fenced_at_once(world: World) -> None:
    """Nothing is tried again."""
    world.put(1)
    world.commits.round()
    world.commits.answered(world.errors(world.errors.UNKNOWN_MEMBER_ID), [])
    assert world.reported() == [(1, "UNKNOWN_MEMBER_ID")]
    assert world.ended[0][1] is not None
    assert world.ended[0][1].fenced


def test_end_of_a_revoke_waits_for_what_is_on_its_way(world: World) -> None:
    """Its own answer, heard late, tells nobody twice."""
    world.put(1)
    world.commits.round()
    world.put(2)
    world.commits.finish()
    assert world.consumer.calls == [("async", [(0, 1)]), ("sync", [(0, 2)])]
    assert world.reported() == [(1, None), (2, None)]
    world.commits.answered(world.errors(world.errors.UNKNOWN_MEMBER_ID), [])
    world.put(3)
    world.commits.round()
    world.commits.close()
    assert world.reported()[2:] == [(3, "ILLEGAL_GENERATION")]


def test_partition_rests_until_it_is_read_and_while_it_is_paused(world: World) -> None:
    """In whichever order the two are said."""
    gates = Gates()
    gates.consumer = world.consumer
    gates.given([PLACE])
    gates.shut([PLACE])
    gates.reads(PLACE)
    assert world.consumer.calls == [("pause", [0])]
    gates.unshut([PLACE])
    gates.shut([PLACE])
    gates.shut([PLACE])
    assert world.consumer.calls[1:] == [("resume", [0]), ("pause", [0])]
    gates.given([PLACE])
    gates.reads(PLACE)
    assert world.consumer.calls[3:] == [("pause", [0]), ("resume", [0])]


def test_room_ends_and_comes_back() -> None:
    """What is posted and not taken counts."""
    room = Room(10)
    room.fill(9)
    assert room.wait(0)
    room.fill(1)
    assert not room.wait(0)
    room.free(10)
    assert room.wait(0)


def test_answer_that_never_comes_is_not_waited_for(world: World) -> None:
    """The member was expelled; and an answer is that of the commit with its offsets, not of the next in line."""
    world.put(1)
    world.commits.round()
    first = world.offsets(1)
    world.terms[PLACE] = 2
    world.commits.expelled()
    world.commits.round()
    assert world.reported() == [(1, "ILLEGAL_GENERATION")]
    world.put(5, term=2)
    world.commits.round()
    assert world.consumer.calls[-1] == ("async", [(0, 5)])
    world.commits.answered(None, world.offsets(5))
    assert world.reported()[-1] == (5, None)
    world.put(6, term=2)
    world.commits.round()
    world.commits.answered(None, first)
    assert world.reported()[-1] == (5, None), "that was the answer of long ago"
    world.clock.advance(UNHEARD_SECONDS)
    world.put(7, term=2)
    world.commits.round()
    assert world.reported()[-1] == (6, "TIMED_OUT")
    assert world.consumer.calls[-1] == ("async", [(0, 7)])


def test_thread_polls_briefly_while_somebody_waits_for_commits(world: World) -> None:
    """For a second after each; else it leaves the processor alone."""
    waits: list[float] = []

    class Polled(Consumer):
        def poll(self, seconds: float) -> None:
            waits.append(seconds)

    thread = MemberThread(
        "g",
        lambda *_, **__: Polled(),
        Polled,
        None,  # type: ignore[arg-type]
        post=Post(world.loop),
        room=Room(1),
        troubles=ClientTroubles(lambda failure: None, str),
        clock=world.clock,
        revoke_seconds=1,
        nothing_seconds=1,
        choice=ProtocolChoice("consumer", 6000, ClusterFacts),
    )
    asked = CommitRequest([Commit("t", 0, 1, "")], [1], lambda said: None)
    for soon, seconds in ((False, 0.0), (True, 0.5), (False, SOON_FOR_SECONDS), (None, 0.0)):
        if soon is not None:
            thread.commit(asked, soon=soon)
        thread._poll()
        world.clock.advance(seconds)
    assert waits == [POLL_SECONDS, SOON_SECONDS, SOON_SECONDS, POLL_SECONDS]
