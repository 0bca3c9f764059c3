"""Sentences of evidence, and the order of causes: what is to be done stands before what only describes the traffic."""

from __future__ import annotations

import pytest

from lag.rules.causes import CAUSES, EVIDENCE, evidence
from lag.rules.expression import Value
from lag.rules.quantities import ALL
from lag.samples import SAMPLE_FIELDS

FACTS: dict[str, Value] = dict.fromkeys(EVIDENCE)


def test_evidence_says_what_is_not_known() -> None:
    """Numbers are rounded to one digit; null reads `unknown`."""
    text = evidence("slow_consumer", FACTS | {"holders": 2, "in_flight": 3, "produce_rate": 1.25, "consume_rate": 0.0})
    assert text == (
        "clients: 2, messages in flight: 3, last client activity an unknown time ago; produced 1.2/s, consumed 0.0/s"
    )


def test_a_client_that_was_never_seen_is_not_missing_for_an_unknown_time() -> None:
    """The node knows of none, however long that is."""
    text = evidence("no_consumer", FACTS | {"lag": 20})
    assert text == (
        "no client of the group has pulled, answered or held a message for as long as is known; 20 messages are behind"
    )


@pytest.mark.parametrize("name", [each.name for each in CAUSES])
def test_every_cause_has_evidence_from_facts(name: str) -> None:
    """Whatever is not known, a sentence comes of it."""
    assert evidence(name, FACTS)


def test_unknown_cause_is_an_error() -> None:
    """By its name."""
    with pytest.raises(KeyError, match="weather"):
        evidence("weather", FACTS)


def test_what_can_be_mended_comes_before_what_describes_traffic() -> None:
    """Never `skip that message` where every message fails, nor `start consumers` where one has a message."""
    order = [each.name for each in CAUSES]
    for first, second in (
        ("topic_deleted", "no_consumer"),
        ("sink_waits", "no_consumer"),
        ("all_fail", "poison_message"),
        ("poison_message", "slow_consumer"),
        ("unanswered", "slow_consumer"),
        ("no_consumer", "slow_consumer"),
    ):
        assert order.index(first) < order.index(second), f"{first} before {second}"
    assert EVIDENCE
    assert {name for name in EVIDENCE if name not in ALL and name not in SAMPLE_FIELDS} <= {
        "peak_committed",
        "committed_before",
        "reset_ago_s",
        *(f"{kind}_{half}" for kind in ("produce", "consume") for half in ("first", "second")),
        "others_lag_mean",
        "others_rate_mean",
    }
