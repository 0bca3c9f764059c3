"""What the jobs of a queue say together, over more of them than one step looks at."""

from __future__ import annotations

from broker.runtime.steps import StepsEnd, step
from proxy.recording.jobs import REASON_CHARS_MAX, STEP_JOBS, JobFigures, look_at_jobs, one_line
from tests.unit.upstream_world import Client, World


def run(world: World) -> tuple[int, JobFigures]:
    """Look at all jobs of the only queue; in how many steps but the last, and what they say."""
    steps = look_at_jobs([world.group_queue()])
    taken = 0
    while not isinstance(made := step(steps), StepsEnd):
        taken += 1
    return taken, made.result


def test_hundred_thousand_that_wait_are_looked_at_in_steps() -> None:
    """The first of the key is out, and is the one that has held the others up."""
    world = World({"topic": "t", "orderKey": "KEY", "timeout": 300_000}, queues=1)
    count = 3 * STEP_JOBS
    world.publish(*["k"] * count)
    [job] = world.pull_all(Client())
    world.group.go_on()
    taken, figures = run(world)
    assert taken == -(-len(world.group_queue().live) // STEP_JOBS)
    assert taken > 1
    assert (figures.in_flight, figures.waiting, figures.retrying) == (1, len(world.group_queue().live) - 1, 0)
    assert figures.held is job
    assert len(figures.holders) == 1


def test_longest_failing_message_is_the_one_that_is_named() -> None:
    """Not the one that failed most."""
    world = World({"topic": "t", "orderKey": "KEY", "retryIntervals": [60_000, -1], "timeout": 300_000}, queues=1)
    client = Client()
    world.publish("a", "b", "c")
    first, second, _ = world.pull_all(client)
    world.answer(client, second, fail=True)
    world.advance(5)
    world.answer(client, first, fail=True)
    _, figures = run(world)
    assert figures.held is second
    assert (figures.retrying, figures.in_flight) == (2, 1)


def test_reason_is_one_line_of_bounded_length() -> None:
    """Whoever failed may have said anything."""
    assert one_line("  a\n\tb  ") == "a b"
    assert one_line(" \n") is None
    assert len(one_line("x" * 500) or "") == REASON_CHARS_MAX
