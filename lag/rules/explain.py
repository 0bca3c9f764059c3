"""What a status, a cause or a figure means, in text: for `pyddmq lag explain` and docs/lag-rules.md, from one table."""

from __future__ import annotations

from dataclasses import dataclass, fields
from difflib import get_close_matches
from typing import Final

from lag.rules.causes import CAUSES
from lag.rules.facts import WINDOW_FACTS
from lag.rules.limits import LagLimits
from lag.rules.quantities import ALL
from lag.rules.statuses import STATUSES
from lag.rules.waiting_rules import WAITING, WAITING_STATUSES
from lag.samples import SAMPLE_FIELDS, ScheduledSample


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """What is said of one name.

    Attributes:
        name: The name of a status, cause or figure.
        kind: `status`, `cause` or `figure`.
        meaning: Its definition, in a sentence.
        formula: How it is computed, or when it holds.
        unit: Of a figure its unit; of a status what it makes of its group.
        advice: What to do.
    """

    name: str
    kind: str
    meaning: str
    formula: str
    unit: str
    advice: str


_ALL = [
    *(
        Explanation(
            name=each.name,
            kind="status",
            meaning=each.meaning,
            formula=str(each.rule),
            unit=each.level.name,
            advice=each.advice,
        )
        for each in (*STATUSES, *WAITING_STATUSES)
    ),
    *(
        Explanation(
            name=each.name, kind="cause", meaning=each.meaning, formula=str(each.rule), unit="", advice=each.advice
        )
        for each in CAUSES
    ),
    *(
        Explanation(
            name=each.name,
            kind="figure",
            meaning=each.meaning,
            formula=str(each.rule),
            unit=each.unit,
            advice=each.advice,
        )
        for each in (*ALL.values(), *WAITING.values())
    ),
]

EXPLANATIONS: Final = {each.name: each for each in _ALL}
"""All that can be explained, by name: statuses worst first, causes, figures."""

assert len(EXPLANATIONS) == len(_ALL), "an ambiguous name cannot be explained"

_WAITING_FIELDS: Final = {field.name for field in fields(ScheduledSample)}
_DEFAULTS: Final = {field.name: getattr(LagLimits(), field.name) for field in fields(LagLimits)}


def explain(name: str) -> str:
    """Return the text on a status, cause or figure: definition, formula, unit, what to do, and what the formula names.

    Args:
        name: Its name; capitals do not matter, and what a status and a cause are both called gives both.

    Raises:
        ValueError: There is none; the text says which names are near.
    """
    named = {each.lower(): each for each in EXPLANATIONS}
    found = [each for each in EXPLANATIONS if each.lower() == name.strip().lower()]
    if not found:
        near = [named[each] for each in get_close_matches(name.strip().lower(), named, n=3)]
        hint = f"did you mean {', '.join(near)}?" if near else f"use one of {', '.join(EXPLANATIONS)}"
        raise ValueError(f"{name!r} is not a known status, cause or figure: {hint}")
    return "\n\n".join(_text(EXPLANATIONS[each]) for each in found)


def _text(each: Explanation) -> str:
    lines = [f"{each.name} ({each.kind})", each.meaning]
    lines.append(f"{'Formula' if each.kind == 'figure' else 'When'}: {each.formula}")
    if each.kind == "figure":
        lines.append(f"Unit: {each.unit}")
    elif each.kind == "status":
        lines.append(f"Makes the group: {each.unit}")
    lines.append(f"What to do: {each.advice}")
    named_facts = _named(each.formula)
    if named_facts:
        lines.append("Where:")
        lines += [f"  {fact}: {text}" for fact, text in named_facts.items()]
    return "\n".join(lines)


def _named(formula: str) -> dict[str, str]:
    """Return what the facts and limits mean that a formula names."""
    words = "".join(letter if letter.isalnum() or letter == "_" else " " for letter in formula).split()
    known: dict[str, str] = {}
    for word in dict.fromkeys(words):
        if word in WINDOW_FACTS:
            known[word] = f"{WINDOW_FACTS[word]}"
        elif word in _DEFAULTS:
            known[word] = f"a limit, by default {_DEFAULTS[word]}"
        elif word in ALL:
            known[word] = f"figure: {ALL[word].meaning}"
        elif word in WAITING:
            known[word] = f"figure: {WAITING[word].meaning}"
        elif word in SAMPLE_FIELDS or word in _WAITING_FIELDS:
            known[word] = "of the newest sample"
    return known
