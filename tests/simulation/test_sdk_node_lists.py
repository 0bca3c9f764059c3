"""A library's list of nodes: what refused sends of one thread do to all of its process (docs/protocol.md, S9)."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

import pytest

from tests.fakes.sdk import PRODUCERS, NodeList, SdkProducer
from tests.fakes.sdk.account import Message
from tests.simulation.test_sdks import SdkWorld, numbered

JAVA = PRODUCERS[0]
WAITING_ONLY = "later"
"""A topic of the type DELAY: an ordinary message for it is refused with 19."""
UNKNOWN = "nobody-has-it"
"""A topic that is not there: refused with 14."""
SECONDS = 5.0
SOON = 0.1
"""What DDMQ's libraries wait for an answer: whatever is within it, no caller notices."""


class Seen(NamedTuple):
    """The longest time between two good sends, how many there were, and how many were refused with which code."""

    longest: float
    good: int
    events: dict[str, int]


def sends_of_a_process(*, listed: int, refused_topic: str) -> Seen:
    """Let one thread send good messages and one refused ones; their list names the node so often."""
    world = SdkWorld(1, 0)
    world.start()
    world.loop.run(world.started.done, seconds=60)
    nodes = NodeList(world.around, listed)
    times: list[float] = []

    def good() -> Iterator[Message]:
        for message in numbered(["k"], 1_000_000):
            times.append(world.loop.time())
            yield message

    producers = (
        SdkProducer(JAVA, world.around, "orders", good(), nodes),
        SdkProducer(JAVA, world.around, refused_topic, numbered(["refused"], 1), nodes),
    )
    tasks = [world.loop.create_task(each.run()) for each in producers]
    world.loop.run(None, seconds=SECONDS, turns_max=10_000_000)
    assert not world.loop.errors, world.loop.errors[0]
    for task in tasks:
        task.cancel()
    times.append(world.loop.time())
    world.kill()
    return Seen(max(later - time for time, later in pairwise(times)), len(times), world.account.events)


def test_listed_once_a_refusal_stops_all_sends_of_a_process_for_two_seconds() -> None:
    """Code 19 leaves the only node out, for the good messages too, as long as docs/protocol.md says."""
    seen = sends_of_a_process(listed=1, refused_topic=WAITING_ONLY)
    assert JAVA.cool_down == 2.0
    assert 1.9 < seen.longest < 2.1
    assert 3 <= seen.events["send code 19"] <= SECONDS / JAVA.cool_down + 1


def test_listed_twice_sends_go_on() -> None:
    """The other entry stays in use, however often the refused message is sent again."""
    seen = sends_of_a_process(listed=2, refused_topic=WAITING_ONLY)
    assert seen.longest < SOON
    assert seen.good > SECONDS / SOON
    assert seen.events["send code 19"] > 100


@pytest.mark.parametrize("listed", [1, 2])
def test_codes_that_keep_the_node_stop_nothing(listed: int) -> None:
    """Codes 11 to 15 leave the node in use, so what no retry can help has one of them."""
    seen = sends_of_a_process(listed=listed, refused_topic=UNKNOWN)
    assert seen.longest < SOON
    assert seen.events["send code 14"] > 100
