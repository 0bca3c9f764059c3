"""A node that is ended while it recovers: what acks may then go with the power."""

from __future__ import annotations

import pytest

from tests.simulation.facts import Place, Stamp
from tests.simulation.ledger import Ledger

PLACE = Place("t", "q", 0)


def _ledger() -> Ledger:
    return Ledger([], ack_loss_seconds=0.1)


def _acked(time: float, life: int = 0) -> Stamp:
    return Stamp(sequence=1, turn=1, time=time, life=life)


@pytest.mark.parametrize(("acked", "may_go"), [(9.95, True), (9.5, False)])
def test_power_that_goes_before_a_killed_node_is_ready_again_takes_its_last_acks(acked: float, may_go: bool) -> None:
    """The window ends with the life of the acks, however long the next ones recover."""
    ledger = _ledger()
    ledger.ended(power_lost=False, time=10.0)
    ledger.ended(power_lost=False, time=12.0, ready=False)
    ledger.ended(power_lost=True, time=15.0, ready=False)
    assert ledger.power_losses.may_take(_acked(acked), PLACE) is may_go


def test_node_that_was_ready_has_made_earlier_acks_durable() -> None:
    """The power takes nothing of the life before it."""
    ledger = _ledger()
    ledger.ended(power_lost=False, time=10.0)
    ledger.ended(power_lost=True, time=10.05)
    assert not ledger.power_losses.may_take(_acked(9.99), PLACE)
    assert ledger.power_losses.may_take(_acked(10.0, life=1), PLACE)
