"""Fetches and acks of a low-level group over the embedded broker, on a manual clock."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from pyddmq.codes import PullCode
from tests.unit.upstream_world import World
from upstream.fetch.fetchers import EXPIRY_SECONDS, FETCHERS_MAX
from upstream.fetch.fetching import Fetching, FetchOrder, FetchRefused, FetchResult

LOW = {"topic": "t", "actions": ["LowLevel"], "maxPullBatchSize": 4}
ROOM = 1 << 20


class Fetches(World):
    """A node with one low-level group."""

    def __init__(self, *subscriptions: dict[str, Any], queues: int = 1, **how: Any) -> None:
        super().__init__(*(subscriptions or (LOW,)), queues=queues, **how)

    def open(self) -> None:
        """Start the node; nobody fetches yet."""
        super().open()
        self.fetching = Fetching(self.group, self.group.node)

    def order(self, consumer: str = "c", positions: Mapping[str, int] | None = None, **how: Any) -> FetchOrder:
        """Ask for the topic's queues, by their numbers."""
        asked = {"t": {f"c_b_{queue}": offset for queue, offset in (positions or {}).items()}}
        given = {"only_named": False, "count_max": None, "bytes_max": ROOM, "times": False, **how}
        return FetchOrder(consumer=consumer, positions=asked, **given)

    def fetch(self, consumer: str = "c", positions: Mapping[Any, int] | None = None, **how: Any) -> FetchResult:
        """Fetch once."""
        order = self.order(consumer, positions, **how)
        return self.fetching.fetch(order, self.fetching.seen(order, "10.0.0.1:5000"))

    def ack(self, queue: int, offset: int, consumer: str = "c") -> bool:
        """Ack one queue and end the turn; whether it counted."""
        refused = self.fetching.ack(consumer, {"t": {f"c_b_{queue}": offset}})
        self.turn_end()
        return not refused

    def owned(self, consumer: str) -> set[str]:
        """Fetch, and return the queues of the reply."""
        return {row.qid for row in self.fetch(consumer).rows}


def offsets(fetched: FetchResult) -> list[int]:
    """Offsets of all messages."""
    return [offset for row in fetched.rows for offset, _ in row.messages]


def bodies(fetched: FetchResult) -> list[bytes]:
    """Bodies of all messages."""
    return [bytes(view[start:end]) for row in fetched.rows for _, (view, start, end, _, _) in row.messages]


def test_asked_offset_is_the_first_that_comes() -> None:
    """W67: also of a fetcher that is new, or that expired meanwhile; nothing is skipped."""
    world = Fetches()
    world.publish(*[None] * 6)
    fetched = world.fetch(positions={0: 3})
    assert offsets(fetched) == [3, 4, 5]
    assert fetched.rows[0].next_offset == 6
    world.advance(EXPIRY_SECONDS + 2)
    assert not world.fetching.fetchers.by_id
    assert offsets(world.fetch(positions={0: 4})) == [4, 5]


def test_many_fetchers_of_one_node_share_the_queues() -> None:
    """W68: each name is a fetcher of its own, at once; W69, W70: one that is gone owns nothing and cannot come back."""
    world = Fetches(queues=4)
    assert world.owned("a") == {"c_b_0", "c_b_1", "c_b_2", "c_b_3"}
    assert len(world.owned("b")) == 2
    assert len(world.owned("a")) == 2
    assert not world.owned("a") & world.owned("b")
    for _ in range(4):
        world.advance(EXPIRY_SECONDS / 3)
        world.owned("b")
    assert list(world.fetching.fetchers.by_id) == ["b"]
    assert len(world.owned("b")) == 4
    assert world.count("pyddmq_fetchers_expired_total", "g") == 1


def test_fetchers_are_bounded() -> None:
    """One more is refused with a code, and those that are there are served."""
    world = Fetches()
    for number in range(FETCHERS_MAX):
        world.fetch(f"c{number}")
    with pytest.raises(FetchRefused) as refused:
        world.fetch("one more")
    assert refused.value.code is PullCode.OVERLOADED
    assert world.fetch("c0").rows


def test_silent_fetcher_expires_and_one_that_works_does_not() -> None:
    """An ack that moves a position proves work; the same ack again proves none (a timer of a hung client sends it)."""
    world = Fetches(queues=2)
    world.publish(*[None] * 20, queue=0)
    world.fetch("a")
    for step in range(1, 6):
        world.advance(EXPIRY_SECONDS * 0.7)
        assert world.ack(0, step, "a")
    assert "a" in world.fetching.fetchers.by_id
    for _ in range(3):
        world.advance(EXPIRY_SECONDS * 0.7)
        world.ack(0, 5, "a")
    assert "a" not in world.fetching.fetchers.by_id


def test_first_fetch_begins_where_the_group_stands() -> None:
    """W71: a new group begins where consumeFromWhere says, a known one at its committed offset."""
    world = Fetches()
    world.publish(*[None] * 6)
    assert offsets(world.fetch()) == [0, 1, 2, 3]
    assert world.ack(0, 2)
    assert offsets(world.fetch("other")) == []
    assert offsets(world.fetch(positions={0: -1})) == [2, 3, 4, 5]
    last = Fetches({**LOW, "consumeFromWhere": "last"})
    assert offsets(last.fetch()) == []
    last.publish(None)
    assert offsets(last.fetch()) == [0]


def test_group_that_begins_last_does_not_get_the_backlog() -> None:
    """The topic was there before the group; its first tracker stands at the end, and stays there."""
    world = Fetches({"topic": "t"})
    world.publish(None, None)
    world.group_name = "late"
    late = world.make_group(world.config({**LOW, "consumeFromWhere": "last"}))
    late.start()
    fetching = Fetching(late, late.node)
    order = world.order()
    fetched = fetching.fetch(order, fetching.seen(order, "x"))
    assert [(row.next_offset, row.messages) for row in fetched.rows] == [(2, [])]


def test_tags_are_filtered_and_leave_no_lag() -> None:
    """W72: whoever fetches gets the subscription's tags alone, and what is passed over does not hold the watermark."""
    world = Fetches({**LOW, "tags": ["blue"]})
    for tag in ("red", "blue", "red", "blue", "red", "red"):
        world.publish(None, tag=tag)
    fetched = world.fetch(count_max=1)
    assert (offsets(fetched), fetched.rows[0].next_offset) == ([1], 2)
    fetched = world.fetch(positions={0: 2})
    assert (offsets(fetched), fetched.rows[0].next_offset) == ([3], 6)
    assert world.ack(0, 4)
    assert world.group_queue().tracker.watermark == 6
    assert world.count("pyddmq_skipped_messages_total", "g", "t", "tag_filter") == 4


def test_fetch_of_what_nobody_wants_is_news_and_moves_on() -> None:
    """A reply without a message whose next offset moved does not wait, so the client comes back from further on."""
    world = Fetches({**LOW, "tags": ["blue"]})
    world.publish(None, tag="red")
    fetched = world.fetch(positions={0: 0})
    assert (offsets(fetched), fetched.rows[0].next_offset, fetched.is_news) == ([], 1, True)
    assert not world.fetch(positions={0: 1}).is_news


def test_stress_tests_are_left_out_unless_wanted() -> None:
    """R86."""
    for wanted in (False, True):
        world = Fetches({**LOW, "pressureTraffic": wanted})
        world.publish(None, properties=[("isPressureTraffic", "TRUE")])
        world.publish(None)
        assert offsets(world.fetch()) == ([0, 1] if wanted else [1])


def test_ack_counts_for_who_owns_the_queue() -> None:
    """W73: not of another's queue, an unknown queue or topic, nor beyond the end; the others of the same ack count."""
    world = Fetches(queues=2)
    assert world.owned("a") == {"c_b_0", "c_b_1"}
    for queue in range(2):
        world.publish(None, None, queue=queue)
    [theirs] = world.owned("b")
    [own] = world.owned("a")
    wrong = {"t": {theirs: 1, own: 2, "nowhere": 1}, "u": {own: 1}}
    assert world.fetching.ack("a", wrong) == 3
    assert not world.ack(int(own[-1]), 3, "a")
    assert not world.ack(int(own[-1]), -1, "a")
    world.turn_end()
    assert world.group_queue(int(own[-1])).tracker.watermark == 2
    assert world.group_queue(int(theirs[-1])).tracker.watermark == 0
    reasons = {reason: world.count("pyddmq_fetch_acks_refused_total", reason) for reason in ("not_owned", "beyond_end")}
    assert reasons == {"not_owned": 1, "beyond_end": 2}
    assert world.count("pyddmq_fetch_acks_refused_total", "unknown_queue") == 2


def test_ack_moves_no_position_back() -> None:
    """An older ack is a repetition: it is answered true and changes nothing."""
    world = Fetches()
    world.publish(*[None] * 4)
    world.fetch()
    assert world.ack(0, 3)
    assert world.ack(0, 1)
    assert world.group_queue().tracker.watermark == 3
    assert world.count("pyddmq_finished_messages_total", "g", "t") == 3


def test_client_acks_what_it_was_given_before_the_queue_moved_on() -> None:
    """A pool starts one client after another: the first was given every queue, and sends all its positions for ever."""
    world = Fetches(queues=2)
    for queue in range(2):
        world.publish(*[None] * 8, queue=queue)
    world.fetch("a")
    [theirs] = world.owned("b")
    queue = int(theirs[-1])
    assert not world.ack(queue, 5, "a")
    assert world.ack(queue, 4, "a")
    assert world.group_queue(queue).tracker.watermark == 4
    assert world.fetch("b", {queue: 4}).rows
    assert world.ack(queue, 6, "b")
    assert world.ack(queue, 5, "a")
    assert world.count("pyddmq_fetch_acks_refused_total", "not_owned") == 1


def test_acked_positions_survive_a_kill() -> None:
    """What was acked before the kill does not come again; what was fetched and not acked does."""
    world = Fetches()
    world.publish(*[None] * 4)
    world.fetch()
    assert world.ack(0, 3)
    world.kill()
    assert offsets(world.fetch()) == [3]


def test_bounds_of_count_and_bytes() -> None:
    """W74: never more than asked or configured, per queue; bytes over all queues, one message at least; tags, times."""
    world = Fetches(queues=2)
    for queue in range(2):
        world.publish(*[None] * 9, queue=queue, body=b"b" * 1000, tag="blue")
    assert [len(row.messages) for row in world.fetch().rows] == [4, 4]
    assert [len(row.messages) for row in world.fetch(count_max=2).rows] == [2, 2]
    assert [len(row.messages) for row in world.fetch(count_max=100).rows] == [4, 4]
    assert sorted(len(row.messages) for row in world.fetch(bytes_max=3 * 1300).rows) == [0, 3]
    assert sorted(len(row.messages) for row in world.fetch(bytes_max=5 * 1300).rows) == [1, 4]
    assert sorted(len(row.messages) for row in world.fetch(bytes_max=1).rows) == [0, 1]
    [row, _] = world.fetch(times=True).rows
    now = world.clock.wall_ms()
    assert row.times == [(now, now)] * 4
    _, (view, _, _, block, end) = row.messages[0]
    assert b"TAGS\x01blue\x02" in bytes(view[block:end])


def test_queues_take_turns_when_bytes_do_not_suffice() -> None:
    """What fills the reply alone keeps no other queue waiting for ever."""
    world = Fetches(queues=3)
    for queue in range(3):
        world.publish(None, queue=queue, body=b"b" * 1000)
    seen = {row.qid for _ in range(3) for row in world.fetch(bytes_max=1).rows if row.messages}
    assert seen == {"c_b_0", "c_b_1", "c_b_2"}


def test_large_message_waits_for_a_reply_of_its_own() -> None:
    """It is not put behind others where it does not fit."""
    world = Fetches(queues=2)
    world.publish(None, queue=0, body=b"s")
    world.publish(None, queue=1, body=b"L" * 9000)
    found = [sorted(map(len, bodies(world.fetch(bytes_max=2000)))) for _ in range(2)]
    assert sorted(found) == [[1], [9000]]


def test_named_queues_are_read_by_anybody_side_by_side() -> None:
    """D49: exactly those that are named, no fetcher, nothing shared out, positions of the group unmoved."""
    world = Fetches({**LOW, "tags": ["blue"]}, queues=2)
    for tag in ("red", *["blue"] * 8):
        world.publish(None, queue=1, tag=tag)
    world.owned("owner")
    for _ in range(2):
        fetched = world.fetch("reader", {1: 0}, only_named=True, count_max=100)
        assert [(row.qid, len(row.messages), row.next_offset) for row in fetched.rows] == [("c_b_1", 8, 9)]
    assert list(world.fetching.fetchers.by_id) == ["owner"]
    assert world.group_queue(1).tracker.ahead == 0
    with pytest.raises(FetchRefused) as unknown:
        world.fetch("reader", {7: 0}, only_named=True)
    assert unknown.value.code is PullCode.NO_SUCH_QUEUE
    with pytest.raises(FetchRefused) as topic:
        world.fetching.fetch(world.order(only_named=True)._replace(positions={"u": {"c_b_0": 0}}), None)
    assert topic.value.code is PullCode.NO_SUCH_TOPIC


def test_reader_acks_what_nobody_owns() -> None:
    """Without fetchers positions are whoever's says so; a fetcher that comes takes that over."""
    world = Fetches(queues=2)
    world.publish(*[None] * 4, queue=1)
    assert world.ack(1, 2, "reader")
    world.owned("owner")
    assert not world.ack(1, 3, "reader")
    assert world.group_queue(1).tracker.watermark == 2


def test_offset_outside_of_the_queue_is_answered_with_the_nearest() -> None:
    """Beyond the end, as after a lost tail, the end is next; below what is kept, the first that is."""
    world = Fetches()
    world.publish(None, None)
    for only_named in (False, True):
        fetched = world.fetch(positions={0: 9}, only_named=only_named)
        assert (offsets(fetched), fetched.rows[0].next_offset, fetched.is_news) == ([], 2, True)


def test_reset_counts_against_what_a_fetcher_had_in_hand() -> None:
    """After an operator's reset neither its position nor an ack of before counts, until it was given as much again."""
    world = Fetches()
    world.publish(*[None] * 4)
    world.fetch()
    assert world.ack(0, 4)
    tracker = world.group_queue().tracker
    world.group.restart_topic("t", lambda: world.progress.reset(tracker, 1))
    assert not world.ack(0, 4)
    assert tracker.watermark == 1
    assert offsets(world.fetch(positions={0: 4}, count_max=1)) == [1]
    assert not world.ack(0, 4)
    assert world.ack(0, 2)
    assert offsets(world.fetch(positions={0: 2})) == [2, 3]
    assert world.ack(0, 4)


def reset_to(world: Fetches, offset: int) -> None:
    """Reset the queue as an operator does, durably."""
    tracker = world.group_queue().tracker
    world.group.restart_topic("t", lambda: world.progress.reset(tracker, offset))
    world.turn_end()


@pytest.mark.parametrize("kills", [1, 2])
def test_reset_outlives_a_kill(kills: int) -> None:
    """Neither an ack sent again to the restarted node nor the client's own position takes the group past a reset."""
    world = Fetches()
    world.publish(*[None] * 4)
    world.fetch()
    assert world.ack(0, 4)
    reset_to(world, 1)
    for _ in range(kills):
        world.kill()
        assert not world.ack(0, 4)
    assert world.group_queue().tracker.watermark == 1
    assert offsets(world.fetch(positions={0: 4}, count_max=2)) == [1, 2]
    assert not world.ack(0, 4)
    assert world.ack(0, 3)
    world.kill()
    assert not world.ack(0, 4)
    assert offsets(world.fetch(positions={0: 4})) == [3]
    assert world.ack(0, 4)


def test_reset_counts_against_a_client_that_was_silent() -> None:
    """Its name had expired when it acks again, or its new position was lost with the reply."""
    world = Fetches()
    world.publish(*[None] * 4)
    world.fetch()
    assert world.ack(0, 4)
    world.advance(EXPIRY_SECONDS + 2)
    reset_to(world, 1)
    assert not world.ack(0, 4)
    for _ in range(2):
        assert offsets(world.fetch(positions={0: 4}, count_max=1))[0] in (1, 2)
    assert not world.ack(0, 4)
    assert world.group_queue().tracker.watermark == 1


def test_group_that_passed_its_reset_is_free_again() -> None:
    """No client had the messages that came after the reset, so positions in them count as in any other group."""
    world = Fetches()
    world.publish(*[None] * 4)
    world.fetch()
    reset_to(world, 0)
    world.publish(*[None] * 4)
    world.kill()
    assert world.ack(0, 5)
    world.kill()
    assert offsets(world.fetch(positions={0: 6})) == [6, 7]


def test_paused_group_is_given_nothing_and_its_acks_count() -> None:
    """Likewise while the node drains."""
    world = Fetches()
    world.publish(None, None)
    assert offsets(world.fetch()) == [0, 1]
    world.pause()
    assert offsets(world.fetch()) == []
    assert world.ack(0, 1)
    world.resume()
    assert offsets(world.fetch()) == [1]
    world.group.begin_drain()
    assert offsets(world.fetch()) == []
    assert world.ack(0, 2)


def test_rate_bounds_what_is_fetched() -> None:
    """R70: maxTps of a low-level topic; what is above it comes later, and nothing blocks."""
    world = Fetches({**LOW, "maxPullBatchSize": 100, "maxTps": 3})
    world.publish(*[None] * 9)
    assert offsets(world.fetch(positions={0: 0})) == [0, 1, 2]
    assert not world.fetch(positions={0: 3}).is_news
    world.advance(1)
    assert offsets(world.fetch(positions={0: 3})) == [3, 4, 5]


def test_new_queues_are_shared_out() -> None:
    """A topic that is widened while somebody fetches."""
    world = Fetches(queues=1)
    assert world.owned("a") == {"c_b_0"}
    world.store.create_topic("t", 3)
    world.publish(None, queue=2)
    assert world.owned("a") == {"c_b_0", "c_b_1", "c_b_2"}


def test_arrival_wakes_who_listens() -> None:
    """Of each flush, and of queues that change hands."""
    world = Fetches(queues=2)
    woken: list[int] = []
    end = world.fetching.listen(lambda: woken.append(1))
    world.publish(None)
    assert woken == [1]
    world.fetch("a")
    assert len(woken) == 2
    end()
    world.publish(None)
    assert len(woken) == 2


def test_messages_that_cannot_be_read_are_passed_over_and_counted() -> None:
    """Its neighbours come, and the watermark passes it."""
    world = Fetches()
    world.publish(None, None, None)
    physical, _, _ = world.store.topics["t"].queues[0].read(1, 1)[0]
    world.sim.flip_bit(f"/data/commitlog/{0:020d}", physical + 5)
    assert offsets(world.fetch()) == [0, 2]
    assert world.ack(0, 1)
    assert world.group_queue().tracker.watermark == 2
    assert world.count("pyddmq_skipped_messages_total", "g", "t", "damaged") == 1


def test_what_was_pulled_and_finished_before_does_not_come() -> None:
    """A group that was pulled, with acks out of order, and is low level from now on."""
    from tests.unit.upstream_world import Client

    world = Fetches({"topic": "t", "maxPullBatchSize": 4})
    world.publish(*[None] * 4)
    client = Client()
    jobs = world.pull_all(client)
    for job in (jobs[1], jobs[2]):
        world.answer(client, job)
    world.group.reconfigure(world.config(LOW))
    world.advance(31)
    assert offsets(world.fetch()) == [0, 3]
    assert world.ack(0, 1)
    assert world.group_queue().tracker.watermark == 3


def test_operators_see_fetchers_and_what_they_own() -> None:
    """Name, address, since when, and queues; the lag of the group as of any other."""
    world = Fetches(queues=2)
    world.publish(*[None] * 4)
    world.fetch("b")
    world.fetch("a")
    view = world.group.stats()
    assert [(each.id, each.address, list(each.queues)) for each in view.fetchers] == [
        ("a", "10.0.0.1:5000", ["t c_b_1"]),
        ("b", "10.0.0.1:5000", ["t c_b_0"]),
    ]
    assert view.topics[0].lag == 4
    [offsets_of] = world.group.offsets()
    assert (offsets_of.consumed, offsets_of.produced) == ({"c_b_0": 0, "c_b_1": 0}, {"c_b_0": 2, "c_b_1": 2})
