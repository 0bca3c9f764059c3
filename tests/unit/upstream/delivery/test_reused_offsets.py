"""Offsets that named other messages before a power loss: clients may still answer these (`flush: async`)."""

from __future__ import annotations

import pytest

from tests.unit.upstream.delivery.test_answer_matching import FINISHED, number_of, say
from tests.unit.upstream_world import Client, World
from upstream.delivery.results import Applied
from upstream.delivery.subscription import REUSED_TIMEOUTS
from upstream.job import UpstreamJob

IGNORED = Applied(ignored=1)


class UnsyncedWorld(World):
    """A node whose records are synced later."""

    flush = "async"


def replaced(client: Client, holder: Client) -> tuple[UnsyncedWorld, UpstreamJob]:
    """Have a client hold a message that the power takes, and another one its offset's new message."""
    world = UnsyncedWorld({"topic": "t", "orderKey": "KEY", "timeout": 1000, "retryIntervals": [0]}, queues=1)
    world.publish("a")
    [lost] = world.pull_all(client)
    world.lose_power()
    world.publish("a")
    [job] = world.pull_all(holder)
    assert (lost.offset, job.offset) == (0, 0)
    assert world.body(job) == 2
    return world, job


@pytest.mark.parametrize("fail", [False, True])
def test_client_that_names_deliveries_answers_only_its_own(fail: bool) -> None:
    """Its answer to the message that is gone changes nothing, whoever has the other one, itself included."""
    client, other = Client(), Client("10.0.0.2:1")
    for holder in (client, other):
        world, job = replaced(client, holder)
        assert say(world, client, job, {}, fail=fail) == IGNORED
        assert say(world, client, job, {0: number_of(job) - 1}, fail=fail) == IGNORED
        assert job.group_queue.tracker.watermark == 0
        assert say(world, holder, job, {0: number_of(job)}) == FINISHED
        assert world.count("pyddmq_stale_results_total", "g", "t", "another_message") == (0 if fail else 2)


def test_late_answer_that_names_a_delivery_of_this_process_counts() -> None:
    """Numbers since the start are known."""
    client, other = Client(), Client("10.0.0.2:1")
    world, job = replaced(client, other)
    first = number_of(job)
    world.advance(1)
    assert world.pull_all(client) == [job]
    assert say(world, other, job, {0: first}) == FINISHED


def test_client_without_numbers_is_not_believed_about_what_another_one_has() -> None:
    """For some timeouts after the start; then any client may answer, as always."""
    client, other, third = Client(), Client("10.0.0.2:1"), Client("10.0.0.3:1")
    world, job = replaced(client, other)
    assert world.answer(client, job) == IGNORED
    assert world.answer(other, job) == FINISHED
    world.advance(REUSED_TIMEOUTS)
    world.publish("a")
    [job] = world.pull_all(other)
    assert world.answer(third, job) == FINISHED


def test_client_without_numbers_is_believed_about_what_it_had_since_the_start() -> None:
    """Its success counts, though the message is with another one by now."""
    client, other = Client(), Client("10.0.0.2:1")
    world, job = replaced(client, other)
    world.advance(1)
    assert world.pull_all(client) == [job]
    assert world.answer(other, job) == FINISHED


def test_offsets_name_one_message_where_nothing_can_be_lost() -> None:
    """After a stop in good order first deliveries have no number; what was delivered before a kill counts."""
    client, other = Client(), Client("10.0.0.2:1")
    world = UnsyncedWorld({"topic": "t", "orderKey": "KEY", "timeout": 1000}, queues=1)
    world.publish("a", "b")
    first, second = world.pull_all(client)
    assert number_of(second) == 0
    world.kill()
    world.publish("c")
    assert say(world, client, first, {}) == FINISHED
    for job in world.pull_all(other):
        assert number_of(job)
        assert world.answer(other, job) == FINISHED
    world.group.stop()
    world.progress.close()
    world.store.close()
    world.open()
    world.publish("d")
    assert [number_of(job) for job in world.pull_all(other)] == [0]
