"""The contract of `upstream.source` over a real Kafka, by either of its protocols: the tests of `tests/contract`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.contract import test_source
from tests.contract.grounds import Ground
from tests.kafka.real_ground import Elsewhere, RealKafkaGround

pytestmark = pytest.mark.long

NOT_ASKED = {
    "test_stretch_is_read_as_asked_and_moves_nothing": "nobody reads topics of Kafka by offset: the configuration "
    "refuses it, over the simulated one as well",
}
"""Sentences that cannot be asked of a real Kafka, and why."""
ALL = {name: test for name, test in vars(test_source).items() if name.startswith("test_")}

globals().update({name: test for name, test in ALL.items() if name not in NOT_ASKED})


@pytest.fixture(scope="module")
def elsewhere(address: str) -> Iterator[Elsewhere]:
    """Other programs at the cluster."""
    found = Elsewhere(address)
    yield found
    found.close()


@pytest.fixture(params=["classic", "consumer"])
def kind(request: pytest.FixtureRequest, elsewhere: Elsewhere) -> Iterator[type[Ground]]:
    """Return the ground."""
    made: list[RealKafkaGround] = []

    class Here(RealKafkaGround):
        protocol = request.param

        def __init__(self, *subscriptions: dict[str, Any], **how: Any) -> None:
            made.append(self)
            super().__init__(*subscriptions, **how)

    Here.elsewhere = elsewhere
    yield Here
    for each in made:
        each.close()


def test_all_is_asked_but_what_is_listed() -> None:
    """A sentence that is added is asked here, too; what is listed is there."""
    assert NOT_ASKED.keys() < ALL.keys()
