"""A whole node with sinks over the simulated network and disk: one outcome for each message, each key in its order."""

from __future__ import annotations

import pytest

from tests.simulation.sinking import Sinking, Troubles

# A node that is killed within the test's process leaves its connections to the garbage collector.
pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")


def run(seed: int) -> Sinking:
    """Four lives, each ended by a kill or a power loss, and then a server that does everything."""
    story = Sinking(seed)
    story.world.start()
    for _ in range(4):
        story.send(25)
        story.world.run(seconds=story.random.random() * 4)
        story.again()
    story.settle()
    return story


@pytest.mark.parametrize("seed", range(4))
def test_every_message_has_one_outcome_through_kills_and_troubles(seed: int) -> None:
    """It is in the sink once, in the order of its key, or a dead letter; whatever fails, is slow or times out."""
    story = run(seed)
    assert story.did["answer lost"]
    assert {"poison", "fails", "raises", "slow", "too slow", "later"} <= set(Troubles.did)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(100, 300))
def test_every_message_has_one_outcome_with_many_seeds(seed: int) -> None:
    """The same, for `make simulate`."""
    run(seed)
