"""Partitions that come and go: what the next owner knows, what is never handed out, and who waits for whom."""

from __future__ import annotations

import pytest

from conf.models import GroupConfig
from pyddmq.actions import Action, Job, Status
from tests.contract.grounds import KafkaGround
from tests.unit.upstream_world import Client
from upstream.kafka.commits.metadata import decode, encode
from upstream.kafka.link import KafkaPartition
from upstream.kafka.partitions import WAITING, MemberSettings
from upstream.progress.tracker import AttemptFailures

KEYED = {"topic": "t", "orderKey": "KEY", "retryIntervals": [2000, 4000], "timeout": 30_000, "maxPullBatchSize": 8}


def _committed(ground: KafkaGround, queue: int = 0) -> tuple[int, str]:
    return ground.cluster().group("g").committed[KafkaPartition("t", queue)]


def _second(first: KafkaGround) -> KafkaGround:
    return KafkaGround(*first.subscriptions, beside=first, queues=first.queues, settings=first.settings)


def test_two_nodes_share_the_partitions_and_read_each_message_once() -> None:
    """A second node gets its part; what the first had in hand of that counts when it is answered in time."""
    first = KafkaGround(KEYED, queues=4)
    client, other = Client(), Client()
    for number in range(40):
        first.put(str(number), key=f"k{number}", queue=number % 4)
    taken = first.take(client)
    second = _second(first)
    first.advance(0.2)
    assert first.ack(client, *taken) == len(taken), "answers count while a partition is given up"
    first.advance(1)
    assert [len(each.member.partitions.owned) for each in (first, second)] == [2, 2]
    rest = first.drain(client, 1)
    first.ack(client, *rest)
    theirs = second.drain(other, 1)
    assert sorted([*taken.values(), *rest.values(), *theirs.values()]) == sorted(str(n).encode() for n in range(40))


def test_node_to_which_others_leave_nothing_knows_that() -> None:
    """It is a member and has no partition: nothing is behind here, and nothing is waited for."""
    first = KafkaGround(KEYED, queues=1)
    second = _second(first)
    [topic] = second.group.stats().topics
    assert (topic.lag, topic.unknown) == (None, WAITING)
    first.advance(1)
    [topic] = second.group.stats().topics
    assert (topic.queues, topic.lag, topic.unknown) == ([], 0, None)


def test_next_owner_knows_what_is_finished_above_and_how_often_the_rest_failed() -> None:
    """After a node that died: the text beside the committed offset says it, within 100 ms of the answer."""
    first = KafkaGround(KEYED, queues=1)
    client = Client()
    for number in range(10):
        first.put(str(number), key=f"k{number}")
    taken = first.drain(client, 1)
    places = sorted(taken)
    first.ack(client, *places[2:5])
    first.ack(client, places[0], fail=True)
    first.advance(0.2)
    first.client.kill()
    second = _second(first)
    first.advance(15)
    again = second.drain(client, 1)
    assert sorted(again) == [places[0], places[1], *places[5:]]
    [job] = [each for each in second.group_queue().live.values() if each.offset == places[0][1]]
    assert job.attempts == 1, "its next failure is its second"


def test_node_that_left_in_order_leaves_nothing_to_wait_for() -> None:
    """Its last commit says so, and the next owner begins at once, also where it would wait for clients (strict)."""
    settings = MemberSettings(session_seconds=10, takeover_seconds=20)
    first = KafkaGround(KEYED, queues=1, settings=settings)
    client = Client()
    first.put("one", key="k")
    first.ack(client, *first.drain(client, 0.5))
    first.member.leave(lambda: None)
    first.advance(0.5)
    offset, text = _committed(first)
    assert decode(text, offset).clean
    second = _second(first)
    first.advance(0.5)
    first.put("two", key="k")
    assert list(second.drain(client, 1).values()) == [b"two"]


def test_strict_takeover_waits_for_clients_of_a_node_that_died() -> None:
    """Nothing of its keys is handed out before its clients' time is over."""
    settings = MemberSettings(session_seconds=10, takeover_seconds=20)
    first = KafkaGround(KEYED, queues=1, settings=settings)
    client = Client()
    first.put("one", key="k")
    assert list(first.drain(client, 0.5).values()) == [b"one"]
    first.client.kill()
    second = _second(first)
    first.advance(18)
    assert second.take(client) == {}
    first.advance(20)
    assert list(second.take(client).values()) == [b"one"]


def test_strict_takeover_waits_for_the_time_that_clients_have_since_a_reload() -> None:
    """A longer one counts at once; a shorter one does not, as messages may be out for the one before."""
    settings = MemberSettings(session_seconds=10, takeover_seconds=20)
    first = KafkaGround(KEYED, queues=1, settings=settings)
    client = Client()
    first.put("one", key="k")
    assert list(first.drain(client, 0.5).values()) == [b"one"]
    second = _second(first)
    for timeout in (60_000, 5_000):
        second.member.configure(GroupConfig.model_validate({"group": "g", "topics": [{**KEYED, "timeout": timeout}]}))
    first.client.kill()
    first.advance(55)
    assert second.take(client) == {}
    first.advance(30)
    assert list(second.take(client).values()) == [b"one"]


def test_node_that_wakes_after_its_session_hands_nothing_out() -> None:
    """What its client had in its buffers, and an assignment that is stale, are no right to hand out (D54)."""
    first = KafkaGround(KEYED, queues=1)
    client = Client()
    first.put("one", key="k")
    first.advance(0.5)
    member = first.client.members[0]
    member.paused = True
    second = _second(first)
    first.advance(14)
    assert list(second.take(client).values()) == [b"one"]
    assert first.pull(client) is None, "before it has heard anything"
    first.cluster().append(KafkaPartition("t", 0), b"k2", b"two")
    member.wake()
    assert first.pull(client) is None
    first.advance(2)
    assert [len(each.member.partitions.owned) for each in (first, second)] == [0, 1]
    assert first.ack(client, ("c_b_0", 0)) == 0


def test_machine_that_was_suspended_hands_nothing_out() -> None:
    """Its own clock stood still meanwhile, that of the brokers did not: the next commit tells (D54)."""
    ground = KafkaGround(KEYED, queues=1)
    client = Client()
    ground.put("one", key="k")
    ground.advance(0.5)
    ground.clock.suspend(3)
    assert ground.member.may_hand_out(), "within its lease"
    ground.clock.suspend(6)
    assert not ground.member.may_hand_out()
    assert ground.pull(client) is None
    ground.advance(1)
    assert list(ground.take(client).values()) == [b"one"]


def test_node_that_leaves_and_comes_back_goes_on() -> None:
    """By another member: what was committed is known, and what is new is read (D56)."""
    ground = KafkaGround(KEYED, queues=2)
    client = Client()
    ground.put("one", key="k")
    ground.ack(client, *ground.take(client))
    ground.wanted = False
    ground.advance(2)
    assert (ground.cluster().group("g").members, len(ground.member.partitions.owned)) == ([], 0)
    assert not ground.member.may_hand_out()
    ground.put("two", key="k")
    ground.wanted = True
    ground.advance(2)
    assert len(ground.client.members) == 2
    assert list(ground.take(client).values()) == [b"two"]


def test_text_of_a_plain_consumer_counts_for_nothing_but_its_offset() -> None:
    """A group moves between pyddmq and plain consumers: their offset is where it goes on, foreign texts are counted."""
    ground = KafkaGround({"topic": "t"}, queues=1)
    for number in range(6):
        ground.put(str(number))
    client = Client()
    taken = sorted(ground.drain(client, 1))
    ground.client.kill()
    ground.cluster().group("g").committed[KafkaPartition("t", 0)] = (taken[3][1], "their own text")
    ground.kill()
    assert sorted(ground.drain(client, 1)) == taken[3:]
    assert ground.count("pyddmq_kafka_commit_texts_foreign_total", "g") == 1


@pytest.mark.parametrize("epochs", [True, False])
def test_text_that_says_more_than_the_log_has_hides_nothing_that_comes(epochs: bool) -> None:
    """A log that lost its end, or another program's text: no message above the end is finished."""
    ground = KafkaGround({"topic": "t"}, queues=1)
    ground.cluster().has_epochs = epochs
    for number in range(6):
        ground.put(str(number))
    taken = sorted(ground.drain(Client(), 1))
    ground.client.kill()
    start, above = taken[3][1], taken[5][1]
    failed = {above + 20: AttemptFailures(3, 0, 0, 0, 0)}
    text, _ = encode(start, [(above, above + 10), (above + 50, above + 1_000_000)], failed, clean=True)
    ground.cluster().group("g").committed[KafkaPartition("t", 0)] = (start, text)
    ground.kill()
    ground.advance(1)
    assert (len(ground.group_queue().tracker.marks), ground.group_queue().tracker.failures) == (above + 1 - start, {})
    assert "was truncated" in ground.member.partitions.topic_troubles.texts()["t"]
    for number in range(40):
        ground.put(f"new {number}")
    found = [body.decode() for _, body in sorted(ground.drain(Client(), 2).items())]
    assert found == ["3", "4", *(f"new {number}" for number in range(40))]


class Raising(Action):
    """Has a fault that one message meets."""

    def act(self, job: Job) -> Status:
        """Raise for it."""
        if job.message.body == b"bad":
            raise KeyError("a fault")
        return Status.CONTINUE


def test_exception_of_an_action_leaves_no_offset_and_no_permit_behind() -> None:
    """With a single permit: it ends as a dead letter, what is behind it goes on, and its offset is committed (W39)."""
    name = f"{Raising.__module__}:Raising"
    entry = {"topic": "t", "actions": ["Async", name, "PullServer"], "concurrency": 1, "maxRetry": 1}
    ground = KafkaGround(entry, queues=1)
    client = Client()
    for body in ("bad", "good", "bad", "also good"):
        ground.put(body)
    seen = []
    for _ in range(20):
        taken = ground.take(client)
        seen += list(taken.values())
        ground.ack(client, *taken)
        ground.advance(1)
        if len(seen) == 2 and not ground.group_queue().live:
            break
    assert seen == [b"good", b"also good"]
    assert ground.letters() == [b"bad", b"bad"]
    assert ground.group_queue().live == {}
    assert ground.committed() == ground.cluster().topics["t"][0].high


def test_header_that_no_property_can_be_named_after_is_counted() -> None:
    """It is left out, and that is told; once for each record."""
    ground = KafkaGround({"topic": "t"}, queues=1)
    ground.cluster().append(KafkaPartition("t", 0), None, b"x", [("", b"1"), ("a\x01b", b"2"), ("c", b"3")])
    ground.advance(0.5)
    assert list(ground.take(Client()).values()) == [b"x"]
    assert ground.count("pyddmq_kafka_headers_left_out_total", "g", "t") == 2


def test_caught_up_group_shows_no_lag() -> None:
    """With nothing unfinished the end of the partition is committed, over whatever cannot be read there."""
    ground = KafkaGround({"topic": "t"}, queues=1)
    client = Client()
    ground.put("one")
    ground.ack(client, *ground.drain(client, 0.5))
    partition = ground.cluster().topics["t"][0]
    partition.high += 5
    ground.advance(1)
    assert ground.committed() == partition.high


def test_idle_member_commits_for_its_lease() -> None:
    """A group with nothing to do is handed the next message at once, hours later."""
    ground = KafkaGround({"topic": "t"}, queues=1)
    client = Client()
    ground.advance(3600)
    ground.put("one")
    assert list(ground.take(client).values()) == [b"one"]
    ground.cluster().down = True
    ground.advance(9)
    assert not ground.member.may_hand_out(), "a cluster that cannot be reached vouches for nothing"


def test_bodies_that_wait_behind_a_key_are_dropped_and_read_again() -> None:
    """One key hangs with much behind it: others go on, memory is bounded, and in the end all come in order (D57)."""
    settings = MemberSettings(session_seconds=10, waiting_bytes=1 << 20)
    ground = KafkaGround({**KEYED, "timeout": 600_000}, queues=1, settings=settings)
    client = Client()
    size = 10_000

    def held() -> int:
        return ground.source().held_bytes  # type: ignore[attr-defined,no-any-return]

    for number in range(1_000):
        ground.cluster().append(KafkaPartition("t", 0), b"hung", b"%05d" % number + bytes(size))
    for number in range(20):
        ground.cluster().append(KafkaPartition("t", 0), b"other%d" % number, b"other")
    ground.advance(5)
    taken = ground.drain(client, 3)
    assert sum(body == b"other" for body in taken.values()) == 20
    assert held() <= 2 * settings.waiting_bytes + 256 * size
    hung = [place for place, body in taken.items() if body != b"other"]
    seen = []
    while hung:
        seen += [taken[place][:5] for place in hung]
        assert ground.ack(client, *hung) == len(hung)
        ground.advance(0.1)
        taken = ground.take(client)
        hung = list(taken)
        assert held() <= 2 * settings.waiting_bytes + 256 * size, "while the backlog drains, too"
        assert ground.member.budget.used == held()
    assert seen == [b"%05d" % number for number in range(1_000)]


def test_nothing_more_of_a_partition_that_is_given_up_is_handed_out() -> None:
    """While its answers are waited for, what arrives in it is for its next owner."""
    first = KafkaGround(KEYED, queues=2)
    client, other = Client(), Client()
    for queue in range(2):
        first.put(f"held {queue}", key=f"k{queue}", queue=queue)
    held = first.take(client)
    for queue in range(2):
        first.put(f"new {queue}", key=f"n{queue}", queue=queue)
    second = _second(first)
    first.advance(0.3)
    [leaving] = [each.queue_id for each in first.group.group_queues() if each.withheld]
    assert list(first.take(client).values()) == [b"new %d" % (1 - leaving)]
    first.ack(client, *held)
    first.advance(1)
    assert list(second.take(other).values()) == [b"new %d" % leaving]


def test_dead_letter_that_kafka_does_not_take_keeps_its_message() -> None:
    """The offset moves when the letter is acknowledged; until then the key waits, and it is tried again."""
    ground = KafkaGround({**KEYED, "retryIntervals": []}, queues=1)
    client = Client()
    ground.put("bad", key="k")
    ground.put("behind", key="k")
    [place] = ground.take(client)
    ground.cluster().down, ground.cluster().sent_seconds_max = True, 1.0
    ground.group.apply("t", place[0], [], [place[1]], client)
    ground.advance(4)
    assert not ground.group_queue().tracker.is_finished(place[1])
    ground.cluster().down = False
    ground.advance(4)
    assert ground.letters() == [b"bad"]
    assert list(ground.take(client).values()) == [b"behind"]
    assert ground.count("pyddmq_kafka_dead_letters_refused_total", "g", "MSG_TIMED_OUT") > 0


def test_gap_of_any_size_costs_nothing_and_stops_nothing() -> None:
    """Above an unfinished message it is passed over once that is finished; below it the group goes on."""
    ground = KafkaGround({"topic": "t"}, {"topic": "u"}, queues=1)
    client, place = Client(), KafkaPartition("t", 0)
    ground.put("below")
    partition = ground.cluster().partition(place)
    [below] = ground.take(client)
    partition.high += 1 << 31
    ground.put("above")
    partition.high += 1 << 31
    ground.advance(3)
    assert ground.take(client) == {}
    assert len(ground.group_queue(0, "t").tracker.marks) == 0
    ground.ack(client, below)
    ground.advance(3)
    [above] = ground.take(client).items()
    assert above[1] == b"above"
    ground.ack(client, above[0])
    ground.advance(3)
    assert ground.committed() == partition.high
