"""Rules as a pure function: what patterns match, which line is named, who `anonymous` is."""

from __future__ import annotations

import fnmatch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conf.sections.access import AccessConfig, AccessRule
from proxy.access.rights import KNOWN_MAX, Rights
from proxy.access.rules import NODE, Patterns, Permission, Rules
from tests.insides import most_kept

NAMES = st.text("ab|%-_", max_size=8)


def rules(*lines: dict[str, object]) -> Rules:
    """Compile these lines."""
    return Rules(AccessConfig(rules=[AccessRule.model_validate(line) for line in lines]))


@given(st.text("ab|%-_*", min_size=1, max_size=10), NAMES)
def test_star_is_any_run_of_characters_and_nothing_else_is_special(pattern: str, name: str) -> None:
    """As fnmatch has it, whose other signs do not occur here."""
    assert (Patterns([pattern]).match(name) == pattern) == fnmatch.fnmatchcase(name, pattern)


@pytest.mark.parametrize(
    ("pattern", "name", "matches"),
    [
        ("a.c", "abc", False),
        ("[ab]", "a", False),
        ("a?", "ab", False),
        ("a*", "a\nb", True),
        ("ab*b", "ab", False),
        ("*", "", True),
        ("a", "A", False),
        ("a", "a\n", False),
    ],
)
def test_pattern_matches_whole_names(pattern: str, name: str, matches: bool) -> None:
    """No sign of regular expressions, no part of a name, no other case."""
    assert (Patterns([pattern]).match(name) is not None) == matches


def test_no_name_takes_long_to_match() -> None:
    """A pattern of many stars against a long name that nearly fits: steps, not an explosion that never ends."""
    pattern, name = "a*" * 60 + "b", "a" * 4000
    assert Patterns([pattern]).match(name) is None


def test_first_line_that_gives_is_named() -> None:
    """Lines add up; a denial says how many lines name the principal."""
    found = rules(
        {"principals": ["a"], "produce": ["x"]},
        {"principals": ["a*"], "produce": ["x", "y*"]},
        {"principals": ["b"], "administer": True},
    )
    assert found.decide("a", Permission.PRODUCE, "x") == (True, 0, "a is granted produce on x")
    assert found.decide("a", Permission.PRODUCE, "yes") == (True, 1, "a* is granted produce on y*")
    denied = found.decide("a", Permission.CONSUME, "x")
    assert (denied.allowed, denied.rule) == (False, None)
    assert found.naming("a") == [0, 1]
    assert found.decide("b", Permission.ADMINISTER, NODE).allowed
    assert found.decide("nobody", Permission.PRODUCE, "x").text == "no rule names nobody"


def test_anonymous_is_matched_by_no_pattern() -> None:
    """A star means everybody who is known; who is nobody has to be written out."""
    found = rules({"principals": ["*", "anon*"], "produce": ["*"]}, {"principals": ["anonymous"], "produce": ["open"]})
    assert not found.decide("anonymous", Permission.PRODUCE, "x").allowed
    assert found.decide("anonymous", Permission.PRODUCE, "open").rule == 1
    assert found.decide("somebody", Permission.PRODUCE, "x").allowed


def test_retry_and_dead_letter_topics_go_with_their_group() -> None:
    """Where a group may be meant; nobody gets the right to send to them by a group's name."""
    found = rules({"principals": ["a"], "consume": ["g"], "readBodies": ["g"], "produce": ["g"]})
    for action in (Permission.CONSUME, Permission.READ_BODIES):
        assert all(found.decide("a", action, name).allowed for name in ("g", "%DLQ%g", "%RETRY%g"))
        assert not found.decide("a", action, "%DLQ%h").allowed
    assert not found.decide("a", Permission.PRODUCE, "%DLQ%g").allowed


def test_connection_keeps_a_bounded_number_of_decisions() -> None:
    """Names that clients make up cost no memory; what was decided stays right."""
    rights = Rights("a", rules({"principals": ["a"], "produce": ["t*"], "consume": ["*"]}), way="token")
    for number in range(3 * KNOWN_MAX):
        assert rights.may_produce(b"t%d" % number)
        assert not rights.may_produce(b"u%d" % number)
        assert rights.may_consume(str(number))
    assert most_kept(rights) <= KNOWN_MAX
    assert not rights.may_produce(b"t\xff")


def test_names_that_a_client_makes_up_do_not_meet_all_rules(monkeypatch: pytest.MonkeyPatch) -> None:
    """One call may ask about 10,000 of them: which rules name a principal is looked up once."""
    looks: list[str] = []
    match = Patterns.match

    def counted(patterns: Patterns, name: str) -> str | None:
        looks.append(name)
        return match(patterns, name)

    monkeypatch.setattr(Patterns, "match", counted)
    lines: list[dict[str, object]] = [{"principals": [f"p{at}", "team-*"], "consume": ["g*"]} for at in range(100)]
    found = rules(*lines)
    for number in range(1_000):
        assert not found.decide("anonymous", Permission.CONSUME, f"g{number}").allowed
        assert found.decide("p7", Permission.CONSUME, f"g{number}").rule == 7
    assert len(looks) < 3_000
    for number in range(5_000):
        assert found.naming(f"team-{number}") == list(range(100))
    assert most_kept(found) < 5_000


def test_rights_without_rules_allow_nothing() -> None:
    """Those of a connection that failed to sign in."""
    rights = Rights("", None, way="denied")
    assert not any((rights.may_produce(b"t"), rights.may_consume("g"), rights.may(Permission.VIEW, "g")))
