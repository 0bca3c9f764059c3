"""A whole node that pushes over the simulated network: nothing lost, order per key, through kills and bad receivers."""

from __future__ import annotations

import pytest

from proxy.operate.lookups.lag import lag_of
from pyddmq.testing import NetworkFaults
from tests.simulation.pushes import GROUP, KEYS, Pushing

# A node that is killed within the test's process leaves its connections to the garbage collector.
pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")


def run(seed: int) -> None:
    """Four lives, each ended by a kill, and then a receiver that takes everything."""
    story = Pushing(seed)
    story.world.start()
    for _ in range(4):
        story.send(25)
        story.world.run(seconds=story.random.random() * 3)
        story.again()
    story.settle()
    did, cut = story.account.did, story.world.network.counts["reset"]
    # At most what was with the receiver when a kill, a reset or a silence came between: one message of a key.
    assert story.account.repeats <= did["reset"] + did["silence"] + cut + 4 * KEYS


@pytest.mark.parametrize("seed", range(4))
def test_push_loses_nothing_and_keeps_order_through_kills(seed: int) -> None:
    """What the receiver took stays taken but for what was out at a kill or cut off; each key in its order."""
    run(seed)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(100, 300))
def test_push_loses_nothing_with_many_seeds(seed: int) -> None:
    """The same, for `make simulate`."""
    run(seed)


def test_push_that_is_killed_repeats_only_what_was_out() -> None:
    """A reply that the node has read counts, also when the next moment kills it."""
    story = Pushing(77)
    story.habits.perfect = True
    world = story.world
    node = world.start()
    story.send(40)
    world.run(seconds=5)
    assert not node.in_force.groups[GROUP].stats(details_max=0).topics[0].lag
    taken = story.account.did["taken"]
    story.again()
    world.run(seconds=5)
    assert story.account.did["taken"] == taken == 40
    story.settle()


def test_push_drains_on_stop() -> None:
    """Requests that are out are answered before the node ends, and none of them comes again."""
    story = Pushing(5)
    story.world.network.faults = NetworkFaults()
    story.habits.perfect = True
    world = story.world
    world.start()
    story.send(30)
    world.stop()
    world.start()
    story.caller = story.caller.other()
    story.settle()
    assert story.account.repeats == 0


def test_lag_of_a_failing_target_has_its_cause() -> None:
    """A receiver that refuses everything is named as the cause, not the consumers, of whom there are none."""
    story = Pushing(9)
    world = story.world
    node = world.start()
    story.habits.failing = True
    story.send(20)

    def reported() -> bool:
        answer = lag_of(node, limit=100)
        return answer is not None and any(each.cause == "push_target_failing" for each in answer.queues)

    assert world.run(until=reported, seconds=3600)
    [topic] = node.in_force.groups[GROUP].stats(details_max=0).topics
    assert topic.push is not None
    assert {url.state for url in topic.push.urls} <= {"open", "half-open"}
    story.habits.failing = False
    story.settle()


@pytest.mark.parametrize(
    ("answer", "fields", "requests", "reason"),
    [
        (503, {"maxRetry": 2, "retryIntervals": []}, 3, "status 503"),
        ({"errno": 7, "errmsg": "no stock"}, {"maxRetry": 0, "retryIntervals": [10, 20]}, 3, "errno 7: no stock"),
        ({"errno": "x"}, {"maxRetry": 0, "retryIntervals": []}, 1, "is not a number"),
    ],
)
def test_what_push_gives_up_is_a_dead_letter(
    answer: int | dict[str, object], fields: dict[str, object], requests: int, reason: str
) -> None:
    """W15, W19: errors by maxRetry, business failures by retryIntervals also where maxRetry is 0, then the letters."""
    story = Pushing(3, **fields, options={"AsyncHttp": {"breaker": {"failures": 0}}})
    story.habits.answer = answer
    story.world.network.faults = NetworkFaults()
    node = story.world.start()
    story.send(1)

    def over() -> bool:
        return not node.in_force.groups[GROUP].stats(details_max=0).topics[0].lag

    assert story.world.run(until=over, seconds=60)
    assert story.habits.asked == requests
    [letter] = story.letters()
    assert reason in letter.reason
    assert b'"uid": 1' in letter.body


def test_retries_of_business_failures_are_spread() -> None:
    """Each comes again after its interval and up to a tenth more, all of them after different waits."""
    more = {"orderKey": None, "retryIntervals": [10_000], "options": {"AsyncHttp": {"breaker": {"failures": 0}}}}
    story = Pushing(11, **more)
    story.world.network.faults = NetworkFaults()
    story.habits.answer = {"errno": 7}
    node = story.world.start()
    story.send(20)

    def over() -> bool:
        return not node.in_force.groups[GROUP].stats(details_max=0).topics[0].lag

    assert story.world.run(until=over, seconds=60)
    waits = [again - first for first, again in story.habits.came.values()]
    assert len(waits) == 20
    assert all(10.0 <= wait < 11.2 for wait in waits)
    assert max(waits) - min(waits) > 0.3
