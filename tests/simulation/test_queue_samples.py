"""Samples of a node in virtual time: each field says what is so, and is null where nobody can know."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from lag.samples import QueueKey, QueueSample, ScheduledSample
from proxy.operate.changes.groups import PauseBody
from proxy.recording.queue_samples import QueueSampler
from proxy.recording.recorder import DROPPED
from tests.insides import opened_of
from tests.simulation.facts import Place
from tests.simulation.loops import TOPIC as LATER
from tests.simulation.operator import change
from tests.simulation.ward import Ward
from upstream.source import Stored
from upstream.views import SinkView

ROUND_SECONDS = 12.0
"""Longer than a round takes to come."""


def one_queue(wanted: dict[str, Any], **by_key: Any) -> None:
    """One queue of `orders`, read by `by-key` with these settings, and by nobody else."""
    wanted["topics"]["orders"]["queues"] = 1
    wanted["groups"] = [wanted["groups"][0]]
    wanted["groups"][0]["topics"][0].update(by_key)


def ward_of(more: Callable[[dict[str, Any]], None] = lambda _: None, **by_key: Any) -> Ward:
    """Return a node with one queue that one group reads."""

    def prepare(wanted: dict[str, Any]) -> None:
        one_queue(wanted, **by_key)
        more(wanted)

    return Ward(prepare)


def rounds(ward: Ward) -> dict[QueueKey, QueueSample]:
    """Return the samples of the next round."""
    before = ward.node.recording.recorder.last
    ward.world.run(until=lambda: ward.node.recording.recorder.last is not before, seconds=ROUND_SECONDS)
    found = ward.node.recording.recorder.last
    assert found is not None
    assert found is not before
    return dict(found.queues)


def sample(ward: Ward, topic: str = "orders", group: str = "by-key") -> QueueSample:
    """Return the next sample of the only queue of a topic."""
    [found] = [each for key, each in rounds(ward).items() if (key.group, key.topic) == (group, topic)]
    return found


def sampler_of(ward: Ward) -> QueueSampler:
    """Return what samples the node's queues."""
    samplers = ward.node.recording.recorder._samplers
    assert samplers is not None
    return samplers[0]


def now_ms(ward: Ward) -> int:
    """The node's wall clock."""
    return ward.node.parts.seams.clock.wall_ms()


def test_queue_at_rest_has_positions_and_nothing_else() -> None:
    """Nobody asked yet: no moment is made up."""
    ward = ward_of()
    found = sample(ward)
    assert (found.start, found.end, found.committed, found.started) == (0, 0, 0, 0)
    assert (found.asked_ms, found.answered_ms, found.moved_ms, found.holders) == (None, None, None, 0)
    assert (found.start_ms, found.committed_ms, found.started_ms, found.end_ms) == (None, None, None, None)
    assert (found.held_key, found.held_since_ms, found.matched) == (None, None, None)
    assert (found.paused, found.limited, found.pushing) == (False, False, False)


def test_message_times_are_those_of_the_oldest_unfinished_and_the_last() -> None:
    """Finished above the committed offset is counted there, and moves no message time."""
    ward = ward_of(timeout=300_000, maxPullBatchSize=2)
    stored = []
    for key in "abcd":
        ward.send("orders", key)
        stored.append(now_ms(ward))
        ward.run(1)
    first, second = ward.pull()
    ward.answer(second, success=True)
    answered = now_ms(ward)
    found = sample(ward)
    assert (found.committed, found.finished, found.end) == (0, 1, 4)
    assert found.started is not None
    assert found.started >= 2
    assert found.start_ms == found.committed_ms
    assert found.committed_ms is not None
    assert found.end_ms is not None
    assert abs(found.committed_ms - stored[0]) <= 5
    assert abs(found.end_ms - stored[3]) <= 5
    assert found.answered_ms is not None
    assert abs(found.answered_ms - answered) <= 5
    assert (found.in_flight, found.holders, found.moved_ms) == (1, 1, None)
    ward.answer(first, success=True)
    moved = now_ms(ward)
    found = sample(ward)
    assert (found.committed, found.finished, found.in_flight) == (2, 0, 0)
    assert found.moved_ms is not None
    assert abs(found.moved_ms - moved) <= 5
    assert found.committed_ms is not None
    assert abs(found.committed_ms - stored[2]) <= 5


def test_key_that_fails_and_what_waits_behind_it_are_named() -> None:
    """Its offset, its attempts, since when, and the last words about it."""
    ward = ward_of(retryIntervals=[60_000, -1])
    for _ in range(3):
        ward.send("orders", "k")
    ward.fail(1)
    failed = now_ms(ward)
    found = sample(ward)
    assert (found.held_key, found.held_offset, found.held_attempts) == ("k", 0, 1)
    assert (found.waiting, found.retrying, found.in_flight) == (2, 1, 0)
    assert found.held_since_ms is not None
    assert abs(found.held_since_ms - failed) <= 5
    assert found.held_reason is not None
    assert found.held_reason.startswith("failed by 10.9.0.1:")


@pytest.mark.parametrize(("keys", "shown"), [("hashed", "8254c329a92850f6"), ("off", None)])
def test_order_keys_are_hashed_or_left_out_as_configured(keys: str, shown: str | None) -> None:
    """The hash is the beginning of SHA-256, so that reports name the same key alike; offset and reason stay."""
    ward = ward_of(lambda wanted: wanted.update(lag={"keys": keys}), retryIntervals=[60_000, -1])
    ward.send("orders", "k")
    ward.fail(1)
    found = sample(ward)
    assert (found.held_key, found.held_offset) == (shown, 0)


def test_pause_and_rate_show() -> None:
    """`limited` is of the time since the sample before, `paused` of now."""
    ward = ward_of(maxTps=1)
    for number in range(8):
        ward.send("orders", f"k{number}")
    assert sample(ward).limited
    ward.finish()
    rounds(ward)
    assert not sample(ward).limited
    assert change(ward.world, "pause", PauseBody(group="by-key")) is not None
    assert sample(ward).paused


def test_poisoned_message_is_named_before_one_that_waits_for_longer() -> None:
    """It is what blocks the queue; both count as failing, in every queue of the topic."""
    ward = ward_of(retryIntervals=[60_000, 1_000, 1_000, 1_000, 1_000, -1], maxPullBatchSize=1, timeout=300_000)
    ward.send("orders", "waits")
    ward.fail(1)
    ward.edit_group(lambda groups: groups[0]["topics"][0].update(retryIntervals=[1_000, -1]))
    ward.send("orders", "poison")
    for _ in range(5):
        ward.fail(1)
        ward.run(2)
    found = sample(ward)
    assert (found.held_key, found.held_attempts, found.failing) == ("poison", 5, 2)


def test_success_is_of_the_subscription_and_a_skip_is_counted() -> None:
    """When the last message succeeded; what an operator skipped moves the offset, and is no success."""
    ward = ward_of(retryIntervals=[60_000, -1])
    ward.send("orders", "a")
    ward.fail(1)
    ward.send("orders", "b")
    assert sample(ward).succeeded_ms is None
    ward.finish()
    succeeded = sample(ward).succeeded_ms
    assert succeeded is not None
    ward.skip(Place("orders", "orders_0", 0))
    found = sample(ward)
    assert (found.committed, found.skipped, found.succeeded_ms) == (2, 1, succeeded)


def test_queue_that_is_gone_has_no_failing_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where a topic of Kafka was made again with fewer partitions: the others fail no more for it."""
    ward = ward_of(retryIntervals=[60_000, -1])
    ward.wanted["topics"]["orders"]["queues"] = 2
    assert ward.edit().accepted
    for number in range(8):
        ward.send("orders", f"k{number}")
    ward.fail(8)
    failing = {key.queue: each.retrying for key, each in rounds(ward).items() if key.group == "by-key"}
    assert min(failing[0], failing[1]) > 0
    broker = ward.node.in_force.groups["by-key"].node.broker
    topic = broker.topic("orders")
    assert topic is not None
    monkeypatch.setattr(broker, "topic", lambda name: SimpleNamespace(queues=topic.queues[:1]))
    rounds(ward)
    assert sample(ward).failing == failing[0]


def test_group_that_is_gone_is_forgotten() -> None:
    """With its last generation, and all that this has in memory."""
    ward = ward_of()
    sampler = sampler_of(ward)
    rounds(ward)
    assert list(sampler.topics) == ["by-key"]
    ward.edit_group(lambda groups: groups.clear())
    rounds(ward)
    assert not sampler.topics


def test_message_that_is_out_for_a_minute_is_named() -> None:
    """By its offset and client, with the moment at which it was handed out; not before."""
    ward = ward_of(timeout=300_000)
    ward.send("orders", "k")
    [place] = ward.pull()
    out = now_ms(ward)
    assert sample(ward).out_offset is None
    ward.run(60)
    found = sample(ward)
    assert (found.out_offset, found.holders, found.asked_ms) == (place.offset, 1, found.time_ms)
    assert found.out_client
    assert found.out_since_ms is not None
    assert abs(found.out_since_ms - out) <= 5


class Away:
    """A sink that waits for two servers, and for a third with some messages alone."""

    def servers_away(self) -> list[SinkView]:
        """Return them."""
        return [
            SinkView(action="SinkRedis", server="c:6379", since_ms=1, reason="refuses one", messages_alone=True),
            SinkView(action="SinkRedis", server="b:6379", since_ms=9, reason="full"),
            SinkView(action="SinkRedis", server="a:6379", since_ms=5, reason="connection\nrefused"),
        ]


def test_server_that_a_sink_waits_for_is_named() -> None:
    """The one that all messages have waited for longest, with its last failure as one line."""
    ward = ward_of()
    ward.send("orders", "k")
    ward.run(1)
    [group_queue] = ward.node.in_force.groups["by-key"].group_queues()
    generation = ward.node.in_force.groups["by-key"].generation_of(group_queue)
    assert generation is not None
    generation.sinks.append(Away())
    found = sample(ward)
    assert (found.sink_server, found.sink_reason, found.sink_since_ms) == ("a:6379", "connection refused", 5)


@pytest.mark.parametrize("seconds", [60, 1_200])
@pytest.mark.parametrize("kill", [True, False])
def test_restart_does_not_forget_when_a_group_was_at_work(seconds: int, kill: bool) -> None:
    """From the newest round of the journal, also where the node was down for longer than a window of the rules."""
    ward = ward_of(timeout=3_600_000)
    ward.send("orders", "k")
    [place] = ward.pull()
    ward.answer(place, success=True)
    before = sample(ward)
    ward.restart(lambda: ward.run(seconds), kill=kill)
    found = sample(ward)
    assert before.asked_ms is not None
    assert (found.asked_ms, found.moved_ms) == (before.asked_ms, before.moved_ms)
    assert found.succeeded_ms == before.succeeded_ms


@pytest.mark.parametrize(
    ("factor", "more"), [(1, 0), (1_000, 0), (1_000_000, 0), (0.001, 0), (1, 90_000), (0, (1 << 63) - 1)]
)
def test_timestamps_of_producers_that_cannot_be_say_nothing(
    monkeypatch: pytest.MonkeyPatch, factor: float, more: int
) -> None:
    """Kafka takes any: those in seconds or microseconds too, and such that no journal has room for."""
    ward = ward_of()
    rounds(ward)
    broker, stored_ms = ward.node.in_force.groups["by-key"].node.broker, int(now_ms(ward) * factor) + more
    monkeypatch.setattr(
        broker, "queue", lambda topic, queue: SimpleNamespace(min_offset=0, max_offset=5, base_offset=0)
    )
    monkeypatch.setattr(broker, "stored", lambda queue, offset: Stored(stored_ms, None))
    found = sample(ward)
    times = {found.start_ms, found.committed_ms, found.started_ms, found.end_ms}
    assert times == {stored_ms if (factor, more) == (1, 0) else None}
    ward.run(1)
    assert ward.node.runtime.metrics.value(DROPPED) == 0


def test_low_level_group_does_not_push() -> None:
    """Its clients answer; no target does."""
    ward = ward_of(lambda wanted: wanted["groups"][0]["topics"][0].pop("orderKey"), actions=["LowLevel"])
    assert not sample(ward).pushing


def test_delayed_message_counts_from_when_it_was_due() -> None:
    """Not from when it was delivered, which a full disk or a stop may have made later."""
    ward = ward_of()
    ward.send("orders", "k", delayMs=3_000)
    due = now_ms(ward) + 3_000
    ward.world.kill()
    ward.run(20)
    ward.start()
    ward.run(1)
    found = sample(ward)
    assert found.end == 1
    assert found.committed_ms is not None
    assert abs(found.committed_ms - due) <= 1_000
    assert opened_of(ward.node).store.store_ms - found.committed_ms > 10_000


def test_filter_tells_which_part_of_the_backlog_is_wanted() -> None:
    """Without a filter it is null; nothing of the other tags is counted as wanted."""
    ward = ward_of(tags=["red"], consumeFromWhere="first")
    ward.node.in_force.groups["by-key"].begin_drain()
    for number in range(6):
        ward.send("orders", f"k{number}")
    found = sample(ward)
    assert (found.committed, found.end, found.matched) == (0, 6, 0.0)


def test_what_is_not_read_again_costs_no_read() -> None:
    """A queue that rests is sampled from what is known of it."""
    ward = ward_of(timeout=300_000)
    for key in "abc":
        ward.send("orders", key)
    rounds(ward)
    sampler = sampler_of(ward)
    before = sampler.times.reads
    assert before > 0
    for _ in range(3):
        rounds(ward)
    assert sampler.times.reads == before


def test_dead_letters_and_losses_are_of_all_time() -> None:
    """Over a restart, too."""
    ward = ward_of(retryIntervals=[])
    ward.send("orders", "k")
    ward.fail(1)
    assert sample(ward).dead_letters == 1
    ward.restart(kill=True)
    assert sample(ward).dead_letters == 1


def waiting(ward: Ward, kind: str) -> list[ScheduledSample]:
    """Return what the next round says of one kind of what waits."""
    rounds(ward)
    assert ward.node.recording.recorder.last is not None
    return [each for each in ward.node.recording.recorder.last.scheduled if each.kind == kind]


def test_what_waits_is_judged_by_the_limits_of_the_node() -> None:
    """A timer that is due in a while is in time; after its moment has passed undelivered it is late."""
    ward = ward_of(lambda wanted: wanted.update(lag={"rules": {"late": "2s"}}))
    ward.send(LATER, "k", delayMs=40_000)
    rounds(ward)
    [(row, verdict)] = ward.node.recording.recorder.waiting()
    assert (row.kind, verdict.status, verdict.figures["scheduled"]) == ("timer", "IN_TIME", 1)
    late = replace(row, overdue=1, oldest_due_ms=now_ms(ward) - 2_000)
    assert ward.node.recording.recorder.last is not None
    ward.node.recording.recorder.last.scheduled[:] = [late]
    assert [each.status for _, each in ward.node.recording.recorder.waiting()] == ["LATE"]


def test_timers_and_delay_levels_are_counted_until_they_are_delivered() -> None:
    """Then once more with nothing, and no longer after that."""
    ward = ward_of()
    ward.send(LATER, "k", delayMs=25_000)
    ward.send(LATER, "k", delayLevel=1)
    [timer] = waiting(ward, "timer")
    assert (timer.pending, timer.overdue, timer.oldest_due_ms) == (1, 0, None)
    ward.run(30)
    assert [each.pending for each in waiting(ward, "timer")] in ([0], [])
    assert waiting(ward, "timer") == []
