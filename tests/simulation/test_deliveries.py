"""Deliveries that have a number on the wire, and clients that hand it back, as clients see it (D40)."""

from __future__ import annotations

import pytest

from pyddmq.testing import NetworkFaults
from tests.simulation.caller import Caller
from tests.simulation.world import TIMEOUT_MS, World


@pytest.mark.parametrize("compact", [False, True])
@pytest.mark.parametrize("echoes", [False, True])
def test_redelivery_is_numbered_and_its_answer_counts_at_once_if_it_says_so(*, compact: bool, echoes: bool) -> None:
    """A first delivery has no number. The second one's answer frees the key; without the number at the timeout."""
    world = World(1, faults=NetworkFaults(delay_ms_max=0.2, fragment_share=0))
    world.start()
    caller = Caller(world, "10.9.0.1", compact=compact)
    world.run(seconds=0.6)
    for uid in (1, 2):
        caller.send("orders", "k", uid=uid)
    [(place, _)] = caller.pull("by-key")
    assert caller.deliveries == {}
    world.run(seconds=TIMEOUT_MS / 1000)
    assert caller.pull("by-key") == [(place, 1)]
    assert list(caller.deliveries) == [place]
    assert caller.answer("by-key", place, success=True, deliveries=caller.deliveries if echoes else None)
    assert [uid for _, uid in caller.pull("by-key")] == ([2] if echoes else [])
    assert caller.deliveries == {}
    if not echoes:
        world.run(seconds=TIMEOUT_MS / 1000)
        [(place, uid)] = caller.pull("by-key")
        assert uid == 2
    assert caller.answer("by-key", place, success=True)
