"""Expressions over plain values: null as in SQL, and the formula as text."""

from __future__ import annotations

import pytest

from lag.rules import causes, statuses
from lag.rules.expression import (
    RuleExpression,
    Value,
    all_of,
    any_of,
    coalesce,
    compiled,
    constant,
    fact,
    first_of,
    highest,
    if_else,
    latest,
    names_in,
    surely,
)
from lag.rules.facts import WINDOW_FACTS, facts_of, row_of
from lag.rules.limits import LagLimits
from lag.rules.quantities import QUANTITIES
from lag.rules.topic_rules import ALONE
from tests.unit.lag.rules.cases import window

A, B, N, T, F = fact("a"), fact("b"), fact("n"), fact("t"), fact("f")
GIVEN: dict[str, Value] = {"a": 7, "b": 2, "n": None, "t": True, "f": False, "zero": 0}


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        (A + B, 9),
        (A - 1, 6),
        (A * 2.5, 17.5),
        (A / B, 3.5),
        (A / fact("zero"), None),
        (A + N, None),
        (N / A, None),
        (A < B, False),
        (A > B, True),
        (A <= 7, True),
        (A >= 8, False),
        (A > N, None),
        (A.equals(7), True),
        (N.equals(N), None),
        (N.is_null(), True),
        (A.is_known(), True),
        (~T, False),
        (~fact("n"), None),
        (F & N, False),
        (N & T, None),
        (T & T, True),
        (N | T, True),
        (N | F, None),
        (F | F, False),
        (if_else(T, 1, 2), 1),
        (if_else(F, 1, 2), 2),
        (if_else(N, 1, 2), 2),
        (highest(A, B), 7),
        (highest(A, N), None),
        (latest(N, B, A), 7),
        (latest(N, N), None),
        (coalesce(N, B, A), 2),
        (coalesce(N), None),
        (any_of(N, F), False),
        (any_of(N, T), True),
        (all_of(T, N), False),
        (all_of(T, T), True),
        (first_of({"one": N, "two": T, "three": T}, "none"), "two"),
        (first_of({"one": N}, None), None),
    ],
    ids=str,
)
def test_plain_value(expression: RuleExpression, value: Value) -> None:
    """Null is not known; nothing is computed from it, and `or` and `and` need it no more where the other decides."""
    found = compiled(expression)(GIVEN)
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    ("expression", "text"),
    [
        (highest(A - B, 0), "max(a - b, 0)"),
        (any_of(A > 1, B.is_known() & T), "(a > 1) or ((b is known) and t)"),
        (all_of(A > 1, B <= 2, ~T), "(a > 1) and (b <= 2) and (not t)"),
        (~all_of(A > 1, T), "not surely ((a > 1) and t)"),
        (~surely(T), "not surely t"),
        (if_else(A.equals(0), None, A / B), "if a = 0 then null else a / b"),
        (A * 1, "a * 1"),
        (constant(True), "true"),
    ],
)
def test_formula(expression: RuleExpression, text: str) -> None:
    """People read it without knowing how it is made."""
    assert str(expression) == text


def test_a_fact_that_was_not_given_is_an_error() -> None:
    """A wrong name never reads as null."""
    with pytest.raises(KeyError, match="nowhere"):
        compiled(fact("nowhere") + 1)(GIVEN)


def test_rules_name_nothing_but_facts_figures_and_limits() -> None:
    """And every fact of the window is looked at by one of them, or told by a cause."""
    samples = window(1, start=0, end=0)
    facts = (
        facts_of([row_of(each) for each in samples], samples[0], 0, LagLimits()).keys()
        | ALONE.keys()
        | QUANTITIES.keys()
    )
    named = {name for each in QUANTITIES.values() for name in names_in(each.rule)}
    named |= names_in(statuses.RULE) | names_in(causes.RULE)
    assert named <= facts | {"hot", "status"}
    assert set(WINDOW_FACTS) <= named | set(causes.EVIDENCE)
