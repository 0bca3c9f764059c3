"""Moments in the bodies of the admin port's changes."""

from __future__ import annotations

import msgspec
import pytest

from proxy.operate.changes.dead_letters import RedriveBody
from proxy.operate.changes.desk import ChangeBody
from proxy.operate.changes.offsets import ResetBody
from proxy.operate.changes.timers import RescheduleBody

SECONDS = 1_760_000_000
BODIES = [
    (ResetBody, {"group": "g", "topic": "t"}, "toTimeMs"),
    (RescheduleBody, {"id": "x"}, "deliverAtMs"),
    (RedriveBody, {"group": "g"}, "fromMs"),
    (RedriveBody, {"group": "g"}, "untilMs"),
]


@pytest.mark.parametrize(("body", "others", "name"), BODIES)
def test_moment_in_seconds_is_refused_with_the_right_number(
    body: type[ChangeBody], others: dict[str, str], name: str
) -> None:
    """A group is not reset to 1970, and a timer is not delivered at once."""
    with pytest.raises(msgspec.ValidationError, match=f"1970-01-21.* looks like seconds: write {SECONDS * 1000}"):
        msgspec.convert({**others, name: SECONDS}, body)
    msgspec.convert({**others, name: SECONDS * 1000}, body)
