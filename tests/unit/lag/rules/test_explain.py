"""Each status, cause and figure is explained, and the page says the same."""

from __future__ import annotations

import pytest

from lag.rules import causes, quantities, statuses, waiting_rules
from lag.rules.explain import EXPLANATIONS, explain
from tools import rules_doc

NAMES = (
    *(each.name for each in statuses.STATUSES),
    *(each.name for each in waiting_rules.WAITING_STATUSES),
    *(each.name for each in causes.CAUSES),
    *quantities.ALL,
    *waiting_rules.WAITING,
)


def test_all_names_are_explained() -> None:
    """Statuses, causes and figures, and nothing else."""
    assert tuple(EXPLANATIONS) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_explanation_has_all_its_parts(name: str) -> None:
    """Definition, formula, unit and what to do; a status says what it makes of its group."""
    each = EXPLANATIONS[name]
    text = explain(name.lower())

    assert each.meaning.endswith(".")
    assert each.advice.endswith(".")
    for part in (each.meaning, each.advice, each.formula, each.unit, f"{name} ({each.kind})"):
        assert part in text
    assert each.formula
    assert bool(each.unit) == (each.kind != "cause")


def test_explanation_says_what_a_formula_names() -> None:
    """Facts, limits and figures, so that nobody has to read the code."""
    text = explain("STOP")
    assert "stop_ms: a limit, by default 180000" in text
    assert "idle_ms: figure: How long there was no progress" in text
    assert "in_flight: figure" in text
    assert "now_ms: the time that is judged" in text


def test_unknown_name_is_answered_by_those_near_it() -> None:
    """A typing error costs no search."""
    with pytest.raises(ValueError, match="'lagg' is not a known status, cause or figure: did you mean lag"):
        explain("lagg")
    with pytest.raises(ValueError, match="use one of DATA_LOSS"):
        explain("xyzzy")


def test_page_has_each_explanation() -> None:
    """Meaning, advice and formula."""
    page = rules_doc.render()
    for each in EXPLANATIONS.values():
        assert each.meaning in page
        assert each.advice in page
        assert f"| `{each.formula}` |" in page
