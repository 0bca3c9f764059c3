"""User-facing texts are plain English: help, errors, descriptions, log events, and pages for users and operators."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

from tools.plain_english import (
    PATTERNS,
    Text,
    faults_of,
    long_sentences,
    pages_of,
    texts_of,
    texts_of_module,
    texts_of_page,
)

ROOT = Path(__file__).parents[3]

EXCEPTIONS = frozenset(
    {
        # The name of a reason, as a label of two counters.
        "damaged, gone (deleted), expired",
    }
)
"""Pieces of texts in which a pattern is right."""


@cache
def _texts() -> tuple[Text, ...]:
    return tuple(texts_of(ROOT, pages_of(ROOT)))


def _excepted(fault: str) -> bool:
    return any(each in fault for each in EXCEPTIONS)


def test_texts_that_users_see_are_plain() -> None:
    """Each fault names file, line and the better form."""
    found = [fault for text in _texts() for fault in faults_of(text) if not _excepted(fault)]
    assert found == [], "\n".join(found)


def test_sentences_of_help_and_pages_are_short() -> None:
    """A long one is two; a table's cell is its own text."""
    found = [fault for text in _texts() if text.prose for fault in long_sentences(text)]
    assert found == [], "\n".join(found)


def test_the_list_of_exceptions_is_short() -> None:
    """A longer one would be the old wording again, by another way."""
    assert len(EXCEPTIONS) <= 10


@pytest.mark.parametrize(
    ("words", "better"),
    [
        ("A group whose alarms nobody is told; repeatable.", "name the role"),
        ("Kafka is asked in vain: no answer.", "does not respond"),
        ("level=x is no number of a level", "is not a valid X"),
        ("state 5 is none: 8 commits", "is not a valid X"),
        ("So many a second at most.", "a name and a unit"),
        ("There is no topic {}; list them all.", "does not exist"),
        ("unknown: there is no such timer", "does not exist"),
        ("The record is no longer stored.", "deleted"),
        ("The other keys of the queue go on.", "continue"),
        ("Messages come again after the restart.", "redelivered"),
        ("Mend the file, then reload.", "fix"),
        ("The topic stands in Kafka.", "is"),
        ("The list shows what is over the limit.", "finished"),
        ("Logs are for who can read them; who is an operator decides.", "relative clause"),
    ],
)
def test_wording_that_is_hard_to_read_is_found(words: str, better: str) -> None:
    """Each with the form to write instead."""
    assert any(better in fault for fault in faults_of(Text("a.py", 1, words, prose=False)))


@pytest.mark.parametrize(
    "words",
    [
        "Topic orders does not exist; pyddmq topics lists all topics.",
        "The node is no longer a member.",
        "Retries take up to an hour.",
        "`told` and `gone` are columns.",
    ],
)
def test_plain_wording_passes(words: str) -> None:
    """Also words that only look alike, and code."""
    assert list(faults_of(Text("a.py", 1, words, prose=True))) == []


def test_a_sentence_ends_at_a_colon_and_a_link_is_its_words() -> None:
    """Twenty-five words pass, one more does not."""
    words = " ".join(["word"] * 24)
    assert not list(long_sentences(Text("a.md", 1, f"{words} [end](a-page.md): {words}.", prose=True)))
    assert list(long_sentences(Text("a.md", 1, f"{words} the end.", prose=True)))


def test_strings_of_a_module_are_found_and_docstrings_only_of_commands() -> None:
    """Pieces of an f-string are one text; messages of assertions are for makers."""
    source = (
        '"""Nobody sees this docstring."""\n\n'
        'def show() -> None:\n    """Show what is there."""\n    assert show, "a maker reads this"\n'
        '    raise ValueError(f"topic {show} "\n        "does not exist")\n'
    )
    found = list(texts_of_module("proxy/cli/a.py", source, frozenset({"show"})))
    assert [(each.line, each.words) for each in found] == [(3, "Show what is there."), (6, "topic {} does not exist")]
    assert len(list(texts_of_module("broker/a.py", source, frozenset({"show"})))) == 1


def test_paragraphs_items_and_cells_of_a_page_are_found() -> None:
    """Code blocks are not."""
    page = (
        "# Title\n\nTwo lines\nof text.\n\n```\ncode\n```\n\n- an item\n  of two lines\n- another\n\n| a cell | b |\n"
    )
    found = [(each.line, each.words) for each in texts_of_page("a.md", page)]
    assert found == [
        (1, "Title"),
        (3, "Two lines of text."),
        (10, "an item of two lines"),
        (12, "another"),
        (14, "a cell"),
        (14, "b"),
    ]


def test_patterns_are_told_apart_by_their_better_forms() -> None:
    """Two patterns with one form would be one pattern."""
    assert len({better for _, better in PATTERNS}) == len(PATTERNS)
