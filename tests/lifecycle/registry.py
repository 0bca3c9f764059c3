"""Which run walks which table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tests.lifecycle.batches import Batches
from tests.lifecycle.dead_letters import DeadLetters
from tests.lifecycle.delays import Delays
from tests.lifecycle.halves import Halves
from tests.lifecycle.loops import Loops
from tests.lifecycle.numbered import Numbered
from tests.lifecycle.orderly import OrderlyRetries
from tests.lifecycle.retries import Retries
from tests.lifecycle.retry_topic import RetryTopicRetries
from tests.lifecycle.scenario import Scenario
from tests.lifecycle.timers import Timers

SCENARIOS: Sequence[type[Scenario]] = (
    Delays,
    Batches,
    Retries,
    OrderlyRetries,
    RetryTopicRetries,
    DeadLetters,
    Timers,
    Loops,
    Halves,
    Numbered,
)

ELSEWHERE: Mapping[str, str] = {
    "actions-push.md: URLs that are out": "tests/unit/actions/http/test_targets.py: of one generation",
}
"""Tables that are in the code themselves, where a test compares the two."""
