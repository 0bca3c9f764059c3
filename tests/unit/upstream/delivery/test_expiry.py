"""What becomes of groups' messages when retention deletes their log file: kept, counted, told before (D29)."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
from structlog.testing import capture_logs

from broker.retention import RELOCATED_PER_STEP, RetentionLimits
from broker.runtime.bundle import runtime_of
from broker.runtime.steps import run_now
from pyddmq.testing import ManualClock, PowerCut
from tests.unit.upstream_world import Client, World
from upstream.embedded.expiry import Expiry
from upstream.retention_losses import MESSAGES_EXPIRED
from upstream.state import JobState

SEGMENT_BYTES = 4096
BODY = b'"' + b"x" * 800 + b'"'
"""Four to a log file."""


class Aging(World):
    """A world whose log files are small and go by size; `keep` says how many stay."""

    segment_bytes = SEGMENT_BYTES

    def open(self) -> None:
        """Start the node, with the groups' retention hold in place."""
        super().open()
        runtime = runtime_of(self.disk, self.clock, metrics=self.metrics, limited_log=self.limited_log)
        self.expiry = Expiry(self.store, self.progress, runtime, lambda: [self.group])
        self.store.retention.holds.append(self.expiry)

    def fill(self, *keys: str | None, **how: Any) -> None:
        """Publish one large message per key."""
        for key in keys:
            self.publish(key, body=BODY, **how)

    def expire(self, files: int = 1) -> None:
        """Let the oldest log files go, and end the turn."""
        self.clock.advance(11)
        self.store.checkpoint()
        gone = self.store.min_offset + files * SEGMENT_BYTES
        retention = self.store.retention
        for _ in range(50):
            retention.limits = RetentionLimits(log_bytes=retention.log_bytes - 1)
            if self.store.min_offset >= gone or not retention.step():
                break
        retention.limits = RetentionLimits()
        self.turn_end()


def ordered(**settings: Any) -> Aging:
    """An ordered group over one queue whose failed messages wait for an hour."""
    return Aging({"topic": "t", "orderKey": "KEY", "retryIntervals": [3_600_000], **settings}, queues=1)


def lost(world: World) -> int:
    """Messages that the group lost."""
    return world.count(MESSAGES_EXPIRED, "g")


def test_backlog_that_nobody_was_given_is_lost_counted_and_logged() -> None:
    """The group goes on with the first message that is kept; how many it lost, and which, is said."""
    world = ordered(concurrency=1)
    with capture_logs() as logs:
        world.fill(*[None] * 12)
        world.expire(2)
    assert lost(world) == 8
    assert world.count("pyddmq_skipped_messages_total", "g", "t", "expired") == 8
    [first, *_] = [line for line in logs if line["event"] == "messages_lost_to_retention"]
    assert (first["count"], first["first_offset"], first["last_offset"], first["reason"]) == (4, 0, 3, "size")
    stats = world.group.stats().topics[0]
    assert (stats.lost, stats.lost_at_ms, stats.queues[0].committed) == (8, world.clock.wall_ms(), 8)
    client = Client()
    handed = []
    while batch := world.pull(client):
        handed += [job.offset for job in batch.jobs]
        for job in batch.jobs:
            world.answer(client, job)
    assert handed == [8, 9, 10, 11]
    assert world.dead_letters() == []


def test_message_with_a_pending_retry_goes_to_the_dead_letters() -> None:
    """What was tried is not lost: reason, origin and attempts are in the dead letter, and its key goes on."""
    world = ordered()
    client = Client()
    world.fill("a", "b", "c", "d", "a", "b")
    jobs = world.pull_all(client)
    world.answer(client, jobs[0], fail=True)
    for job in jobs[1:]:
        world.answer(client, job)
    world.expire()
    [letter] = world.dead_letters()
    assert (letter["DLQ_ORIGIN_OFFSET"], letter["DLQ_ATTEMPTS"]) == ("0", "1")
    assert letter["DLQ_REASON"].startswith("expired: deleted by retention for the size of the log")
    assert letter["DLQ_REASON"].endswith("failed by 10.0.0.1:5000")
    assert letter["body"] == BODY.decode()
    assert world.count("pyddmq_dead_letters_total", "g", "t", "expired") == 1
    assert lost(world) == 0
    assert sorted(job.offset for job in world.pull_all(client)) == [4, 5]


def test_message_that_is_out_goes_to_the_dead_letters_and_keeps_its_key() -> None:
    """Its next one waits until the client has answered, so that never two of a key are in flight (D12)."""
    world = ordered()
    client = Client()
    world.fill("a", "b", "c", "d", "a", "e")
    jobs = {job.offset: job for job in world.pull_all(client)}
    assert sorted(jobs) == [0, 1, 2, 3, 5]
    world.expire()
    assert [letter["DLQ_ORIGIN_OFFSET"] for letter in world.dead_letters()] == ["0", "1", "2", "3"]
    assert jobs[0].state is JobState.HELD
    assert world.pull_all(client) == []
    assert world.answer(client, jobs[0]).repeated == 1
    assert [job.offset for job in world.pull_all(client)] == [4]
    assert (lost(world), world.group.stats().topics[0].queues[0].committed) == (0, 4)


def test_held_key_goes_on_when_the_holder_lets_the_timeout_pass() -> None:
    """A client that never answers holds the key of an expired message no longer than its timeout."""
    world = ordered(timeout=60_000)
    client = Client()
    world.fill("a", "b", "c", "d", "a")
    world.pull_all(client)
    world.expire()
    assert world.pull_all(client) == []
    world.advance(60)
    assert [job.offset for job in world.pull_all(client)] == [4]


def test_failures_of_an_earlier_process_are_kept_too() -> None:
    """What failed before a restart is pending although nobody has read it again."""
    world = ordered()
    client = Client()
    world.fill("a", "b", "c", "d", "e")
    world.answer(client, world.pull_all(client)[0], fail=True)
    world.kill()
    world.expire()
    assert [letter["DLQ_ORIGIN_OFFSET"] for letter in world.dead_letters()] == ["0"]
    assert lost(world) == 3


def test_failures_of_a_group_that_is_no_longer_configured_are_kept() -> None:
    """Taking a group out of the configuration deletes nothing (D6): its pending retries become dead letters."""
    world = ordered()
    client = Client()
    world.fill("a", "b", "c", "d", "e")
    world.answer(client, world.pull_all(client)[0], fail=True)
    world.group.stop()
    world.group_name = "other"
    world.group = world.make_group(world.config())
    world.group.start()
    world.expire()
    world.group_name = "g"
    assert [letter["DLQ_ORIGIN_OFFSET"] for letter in world.dead_letters()] == ["0"]


def test_messages_that_the_group_does_not_want_are_no_loss() -> None:
    """A tag filter would have skipped them: only wanted ones count."""
    world = Aging({"topic": "t", "tags": ["red"], "concurrency": 1}, queues=1)
    world.fill("k", "k", tag="red")
    world.fill("k", "k", tag="blue")
    world.fill("k")
    with_somebody = world.pull_all(Client())
    assert len(with_somebody) == 1
    world.expire()
    assert (lost(world), len(world.dead_letters())) == (1, 1)


def test_file_waits_while_dead_letters_are_refused() -> None:
    """A disk that takes no append holds the file, and the message stays what it was; then both go."""
    world = ordered()
    client = Client()
    world.fill("a", "b", "c", "d", *[None] * 8)
    world.answer(client, world.pull_all(client)[0], fail=True)
    world.clock.advance(11)
    world.store.checkpoint()
    world.fill_disk()
    world.expire()
    assert world.store.min_offset == 0
    assert world.count("pyddmq_retention_waits_total") == 1
    assert world.group.stats().topics[0].retrying == 1
    world.sim.capacity_bytes = None
    world.expire()
    assert world.store.min_offset == SEGMENT_BYTES
    assert [letter["DLQ_ORIGIN_OFFSET"] for letter in world.dead_letters()] == ["0", "1", "2", "3"]


def test_relocation_is_bounded_per_step() -> None:
    """Many pending messages take many steps, and the loop is free in between."""

    class Large(Aging):
        segment_bytes = 1 << 20

    world = Large({"topic": "t", "retryIntervals": [3_600_000], "maxPullBatchSize": 1000}, queues=1)
    client = Client()
    world.publish(*[None] * (RELOCATED_PER_STEP * 2 + 10))
    jobs = world.pull_all(client)
    world.group.apply("t", jobs[0].qid, [], [job.offset for job in jobs], client)
    world.turn_end()
    while world.store.end < 1 << 20:
        world.publish(*[None] * 100, body=BODY)
    world.clock.advance(11)
    world.store.checkpoint()
    retention = world.store.retention
    retention.limits = RetentionLimits(log_bytes=1)
    letters = []
    while world.store.min_offset == 0:
        assert retention.step()
        letters.append(len(world.dead_letters()))
    assert letters[0] == RELOCATED_PER_STEP
    assert letters[1] == RELOCATED_PER_STEP * 2
    assert letters[-1] >= RELOCATED_PER_STEP * 2 + 10


@pytest.mark.parametrize("changes", range(40))
def test_kill_at_any_change_neither_loses_nor_repeats_a_dead_letter(changes: int) -> None:
    """Killed at every change of the disk: a pending message is in the log or, once, in the dead letters."""
    world = ordered()
    client = Client()
    world.fill("a", "b", "c", "d", "a", "b", "c", "d", "e")
    jobs = world.pull_all(client)
    world.answer(client, jobs[0], fail=True)
    world.answer(client, jobs[1])
    world.clock.advance(11)
    world.store.checkpoint()
    world.sim.stop_after(changes)
    with contextlib.suppress(PowerCut):
        world.store.retention.limits = RetentionLimits(log_bytes=SEGMENT_BYTES)
        world.store.retention.step()
        world.turn_end()
    world.kill()
    if not world.store.min_offset:
        world.expire()
    letters = [letter["DLQ_ORIGIN_OFFSET"] for letter in world.dead_letters()]
    assert sorted(letters).count("0") == 1
    assert len(letters) == len(set(letters))
    assert "1" not in letters
    # c and d were out with a client of the killed process: dead-lettered by it, or lost with their file, counted.
    assert lost(world) + len(letters) == 3
    assert sorted(job.offset for job in world.pull_all(client)) == [4, 5, 6, 7, 8]


def test_group_is_told_before_it_loses_messages() -> None:
    """With a tenth of the age left the log says so once a minute, and stats tell seconds and bytes at any time."""
    world = ordered()
    world.fill("a", "b")
    limits = RetentionLimits(age_ms=1_000_000, log_bytes=100 * SEGMENT_BYTES)
    world.store.retention.limits = limits
    stats = world.group.stats().topics[0]
    for left in (stats, stats.queues[0]):
        assert left.expires_seconds == 1000
        assert 0.98 <= (left.expires_share or 0) <= 1
        assert left.expires_bytes == 100 * SEGMENT_BYTES - world.store.retention.log_bytes
    with capture_logs() as logs:
        world.clock.advance(890)
        run_now(world.expiry.looking_ahead())
        assert not logs
        world.clock.advance(30)
        run_now(world.expiry.looking_ahead())
        world.clock.advance(31)
        run_now(world.expiry.looking_ahead())
    [line] = [line for line in logs if line["event"] == "messages_near_deletion"]
    assert (line["group"], line["topic"], line["offset"], line["seconds_left"]) == ("g", "t", 0, 80)


def test_queues_are_looked_ahead_at_in_steps() -> None:
    """A group with 300 queues takes several steps; the next look comes half a minute later."""
    world = Aging({"topic": "t"}, queues=300)
    world.clock.advance(31)
    assert len(list(world.expiry.looking_ahead())) >= 4
    assert not list(world.expiry.looking_ahead())


def test_caught_up_group_has_nothing_left_to_lose() -> None:
    """Without lag there is no forecast."""
    world = ordered()
    client = Client()
    world.store.retention.limits = RetentionLimits(age_ms=1000)
    world.fill("a")
    world.answer(client, world.pull_all(client)[0])
    assert world.group.stats().topics[0].expires_seconds is None
    assert isinstance(world.clock, ManualClock)
