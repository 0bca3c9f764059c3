"""Bodies that a pipeline made: who gets them, how long they are kept, and what they count for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from actions.registry import BUILT_IN, Registry
from pyddmq.actions import Action, Job, Status
from tests.insides import buffer_of
from tests.unit.upstream_world import Client, World
from upstream.delivery.transformed_bodies import SHARES, MadeBodies
from upstream.job import UpstreamJob
from upstream.message_holder import BODY_BYTES

TRANSIT = {"Transit": {"fields": {"n": "$.n", "made": "$.a.b"}}}
BOTH = {"PullServer": {"body": "transformed"}, **TRANSIT}
BODY = b'{"z" : 1, "n": 1.50, "a": {"b": "x"}}'
MADE = b'{"n":1.50,"made":"x"}'


def world(**settings: Any) -> World:
    """Make a group whose clients get what Transit made."""
    actions = settings.pop("actions", ["Json", "Transit", "Async", "PullServer"])
    return World({"topic": "t", "actions": actions, "options": BOTH, **settings}, queues=1)


def sent(made: World, jobs: list[UpstreamJob], bytes_max: int = 1 << 20) -> list[bytes]:
    """Bodies as a reply would have them."""
    subscription = made.generation(jobs[0])
    assert subscription.slices(jobs) is None
    reply = subscription.sort_out(jobs, bytes_max)
    assert not reply.unreadable
    made.group.settle(reply)
    return [bytes(view[begin:end]) for _, (view, begin, end, _, _) in reply.messages]


def held(made: World) -> MadeBodies:
    """The account of the one subscription."""
    subscription = made.group.generation_of(made.group_queue())
    assert subscription is not None
    assert subscription.made_bodies is not None
    subscription.made_bodies.settle()
    return subscription.made_bodies


@pytest.mark.parametrize("order_key", [None, "KEY", "$.n"])
def test_client_gets_what_the_pipeline_made(order_key: str | None) -> None:
    """Also behind its key, where no body was kept while it waited (D15); properties and key go with it."""
    made = world(orderKey=order_key)
    client = Client()
    made.publish("k", "k", body=BODY, properties=[("p", "1")])
    got = []
    while jobs := made.pull_all(client):
        got += sent(made, jobs)
        assert jobs[0].message.properties == {"p": "1"}
        for job in jobs:
            made.answer(client, job)
    assert got == [MADE, MADE]
    del jobs, job
    assert held(made).bytes == 0


def test_body_of_a_redelivery_a_retry_and_a_restart_is_the_same() -> None:
    """A timeout and a fail bring it again without the actions; after a kill and a reload they run anew."""
    made = world(timeout=1000, maxRetry=-1, retryIntervals=[100, -1])
    client = Client()
    made.publish(None, body=BODY)
    assert sent(made, made.pull_all(client)) == [MADE]
    made.advance(2)
    again = made.pull_all(client)
    assert sent(made, again) == [MADE]
    made.answer(client, again[0], fail=True)
    made.advance(1)
    assert sent(made, made.pull_all(client)) == [MADE]
    made.kill()
    assert sent(made, made.pull_all(client)) == [MADE]
    other = {"PullServer": {"body": "transformed"}, "Transit": {"fields": {"other": "$.z"}}}
    changed = {**made.subscriptions[0], "options": other}
    made.group.reconfigure(made.config(changed))
    made.advance(40)
    assert sent(made, made.pull_all(client)) == [b'{"other":1}']


def test_parsed_body_is_written_again_and_a_raw_one_is_as_it_was() -> None:
    """With Json alone the order of names and the numbers stay; without it nothing is changed."""
    for actions, expected in ((["Json", "PullServer"], b'{"z":1,"n":1.50,"a":{"b":"x"}}'), (["PullServer"], BODY)):
        options = {"PullServer": {"body": "transformed"}}
        made = World({"topic": "t", "actions": actions, "options": options}, queues=1)
        made.publish(None, body=BODY)
        assert sent(made, made.pull_all(Client())) == [expected]


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_bytes_of_any_kind_are_handed_out_as_they_are(kind: Callable[[bytes], Any]) -> None:
    """As pushes and sinks take them."""

    class Reversing(Action):
        changes_body = True

        def act(self, job: Job) -> Status:
            job.data = kind(bytes(job.body)[::-1])
            return Status.CONTINUE

    registry = Registry({**BUILT_IN, "Reversing": Reversing})
    subscription = {
        "topic": "t",
        "actions": ["Reversing", "PullServer"],
        "options": {"PullServer": {"body": "transformed"}},
    }
    made = World(subscription, queues=1, registry=registry)
    made.publish(None, body=BODY)
    assert sent(made, made.pull_all(Client())) == [BODY[::-1]]


def test_other_groups_keep_the_fast_way() -> None:
    """Without the option nothing is kept, and replies are cut out of the log."""
    made = World({"topic": "t", "actions": ["Json", "PullServer"]}, queues=1)
    made.publish(None, body=BODY)
    jobs = made.pull_all(Client())
    assert made.generation(jobs[0]).made_bodies is None
    slices = made.generation(jobs[0]).slices(jobs)
    assert slices is not None
    assert jobs[0].made is None


def test_reply_is_bounded_by_what_it_carries() -> None:
    """What has no room in it goes back, uncounted, and comes with the next pull."""
    made = world()
    made.publish(None, None, None, body=BODY)
    jobs = made.pull_all(Client())
    [(_, (_, begin, _, _, end)), *_] = made.generation(jobs[0]).sort_out(jobs, 1 << 20).messages
    assert sent(made, jobs, bytes_max=2 * (end - begin)) == [MADE, MADE]
    assert len(sent(made, made.pull_all(Client()))) == 1


def test_bodies_count_against_the_memory_ceiling_and_stop_admission() -> None:
    """At a share of it no further message is run; what is finished makes room."""
    made = world(maxPullBatchSize=1, concurrency=1000)
    budget = buffer_of(made.group).budget
    body = {"n": "x" * 20_000}
    made.publish(None, body=body)
    size = held(made).bytes
    budget.configure(SHARES * 3 * size)
    made.publish(*[None] * 20, body=body)
    made.advance(1)
    running = sum(job.state.name == "BUFFERED" for job in made.group_queue().live.values())
    assert held(made).bytes == running * size
    assert running == 9, "what one call of the actions was given is not cut"
    client = Client()
    first = made.pull(client)
    made.publish(*[None] * 20, body=body)
    made.advance(1)
    assert held(made).bytes == running * size, "nothing is admitted above the share"
    finished = 0
    for _ in range(60):
        batch, first = first or made.pull(client), None
        for job in batch.jobs if batch else ():
            made.answer(client, job)
            finished += 1
        job = batch = None  # type: ignore[assignment]
        made.advance(0.2)
    assert finished == 41
    assert held(made).bytes == 0
    budget.recount()
    assert budget.used == budget.job_bytes


def test_end_of_a_subscription_takes_its_bodies_off() -> None:
    """Those that are still out, too."""
    made = world()
    made.publish(None, None, body=BODY)
    jobs = made.pull_all(Client())
    account = held(made)
    assert account.bytes == 2 * (len(MADE) + BODY_BYTES)
    budget = buffer_of(made.group).budget
    used = budget.used
    assert used == budget.job_bytes + account.bytes
    made.group.stop()
    assert account.bytes == 0
    assert used - budget.used >= 2 * (len(MADE) + BODY_BYTES)
    assert not budget.settlers
    del jobs
