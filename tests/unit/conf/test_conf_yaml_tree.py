"""The YAML reader: lines, caps, and what it refuses."""

from __future__ import annotations

from contextlib import suppress
from itertools import pairwise

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from conf.problems import ConfigError, Problem
from conf.yaml_tree import DEPTH_MAX, TEXT_BYTES_MAX, Mapping, line_of, parse, plain


def problem_of(text: str) -> Problem:
    """Parse a text that is wrong and return its only problem."""
    with pytest.raises(ConfigError) as caught:
        parse(text, "f.yaml")
    assert len(caught.value.problems) == 1
    return caught.value.problems[0]


# Control characters and Unicode's line separators are folded by YAML itself.
texts = st.text(st.characters(exclude_categories=["Cc", "Cs", "Zl", "Zp"]), max_size=12)


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | texts,
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
        max_leaves=20,
    )
)
def test_parse_random_document_equals_safe_load(value: object) -> None:
    """What PyYAML writes of plain data comes back equal, as from its own safe loader."""
    text = yaml.safe_dump({"root": value}, allow_unicode=True)

    assert plain(parse(text, "f.yaml")) == {"root": value} == yaml.safe_load(text)


def test_line_of_nested_key_is_the_line_of_the_key() -> None:
    """A path leads to the line on which its key stands, also inside lists and flow style."""
    tree = parse("a: 1\nb:\n  - x: 1\n    y: 2\n  - {x: 3,\n     y: 4}\n", "f.yaml")

    assert line_of(tree, ("b", 0, "y")) == 4
    assert line_of(tree, ("b", 1, "y")) == 6
    assert line_of(tree, ("b", 1, "absent")) == 5


def test_parse_duplicate_keys_names_both_lines() -> None:
    """A key given twice is an error with the line of both."""
    problem = problem_of("a: 1\nb: 2\na: 3\n")

    assert (problem.line, problem.path) == (3, "a")
    assert "first on line 1" in problem.text


def test_parse_dates_and_base_60_numbers_stay_text() -> None:
    """YAML 1.1's surprises stay what was written."""
    tree = parse("at: 2024-05-01T00:00:00Z\nspan: 12:30\nno: 1\n1: x\n", "f.yaml")

    assert plain(tree) == {"at": "2024-05-01T00:00:00Z", "span": "12:30", "no": 1, "1": "x"}


def test_parse_merge_key_adds_what_is_not_there() -> None:
    """`<<` brings in a mapping's keys, and the mapping's own win."""
    tree = parse("base: &base {a: 1, b: 2}\nmine:\n  <<: *base\n  b: 3\nboth:\n  <<: [*base, {c: 4}]\n", "f.yaml")

    assert plain(tree) == {"base": {"a": 1, "b": 2}, "mine": {"a": 1, "b": 3}, "both": {"a": 1, "b": 2, "c": 4}}


@pytest.mark.parametrize("text", ["", "# only a comment\n", "---\n", "null\n"])
def test_parse_empty_document_is_an_empty_mapping(text: str) -> None:
    """A file without content is a mapping without keys."""
    assert parse(text, "f.yaml") == Mapping(1)


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("a: [1,\n", 2, "is not valid YAML"),
        ("a: 1\n\tb: 2\n", 2, "has a tab in column 1; YAML is indented with spaces"),
        ("a: 1\n---\nb: 2\n", 2, "second document"),
        ("a: 1\nb: !!python/object/apply:os.system ['true']\n", 2, "tag"),
        ("a: !local x\n", 1, "tag"),
        ("a: !!int twelve\n", 1, "cannot be read as int"),
        ("a: 1\nb: !!int\n", 2, "cannot be read as int"),
        ("a: !!float ''\n", 1, "cannot be read as float"),
        ("a: *gone\n", 1, "*gone is not defined"),
        ("a: &a [*a]\n", 1, "*a is not defined"),
        ("? [a, b]\n: 1\n", 1, "a key must be plain text"),
        ("a: &a [1]\n*a : 2\n", 2, "a key must be plain text"),
        ("a:\n  <<: 5\n", 2, "<< takes a mapping"),
        ("a: \x01\n", 1, "character"),
        ("a: 1\nb: " + "9" * 5000 + "\n", 2, "cannot be read as int"),
        ("a: 1\nb: 0x" + "f" * 5000 + "\n", 2, "cannot be read as int"),
    ],
)
def test_parse_wrong_text_names_the_line(text: str, line: int, words: str) -> None:
    """Each kind of wrong YAML is one problem with its line and a sentence."""
    problem = problem_of(text)

    assert problem.line == line
    assert words in problem.text


def test_parse_deep_nesting_is_refused_without_recursion() -> None:
    """Nesting far beyond the cap is a sentence, not an exhausted stack."""
    assert "nested deeper" in problem_of("[" * 100_000).text
    assert parse("[" * DEPTH_MAX + "]" * DEPTH_MAX, "f.yaml").depth == DEPTH_MAX


def test_parse_alias_bomb_is_counted_before_it_is_expanded() -> None:
    """Aliases that multiply to a billion values are refused while they are still few."""
    names = "abcdefghi"
    lines = [f"a: &a [{', '.join('1' * 10)}]"]
    lines += [f"{new}: &{new} [{', '.join([f'*{old}'] * 10)}]" for old, new in pairwise(names)]

    assert "values" in problem_of("\n".join(lines)).text


def test_parse_depth_through_aliases_counts() -> None:
    """An alias cannot nest deeper than the cap either."""
    lines = ["a0: &a0 [1]"] + [f"a{n}: &a{n} [*a{n - 1}]" for n in range(1, DEPTH_MAX + 2)]

    assert "levels" in problem_of("\n".join(lines)).text


def test_parse_huge_text_is_refused_unread() -> None:
    """Text beyond the cap is not handed to the parser."""
    assert "larger than" in problem_of("#" * (TEXT_BYTES_MAX + 1)).text


@given(st.text(max_size=60))
def test_parse_garbage_gives_a_tree_or_a_config_error(text: str) -> None:
    """Whatever text comes, there is a tree or a ConfigError."""
    with suppress(ConfigError):
        assert parse(text, "f.yaml").size >= 1
