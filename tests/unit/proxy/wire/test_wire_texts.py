"""Texts from outside: which are refused, and what is shown of those that anybody may send."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.wire.errors import TextError
from proxy.wire.texts import CLIENT_NAME_MAX, check_pairs, check_text, client_name, shown, text_or_none


@pytest.mark.parametrize(
    ("said", "kept"),
    [
        ("carrera-go 1.2", "carrera-go 1.2"),
        (b"carrera-php \xc3\xa9", "carrera-php é"),
        ("  padded ", "padded"),
        ("two\nlines\r\x00\x1b[31mred", "two?lines???[31mred"),
        ("left\u202eright", "left?right"),
        (b"\xff\xfe", "��"),
        (" \t ", "?"),
        ("   ", ""),
        ("", ""),
        (b"", ""),
    ],
)
def test_client_name_stays_on_one_line(said: str | bytes, kept: str) -> None:
    """Line breaks, escapes for terminals and marks that turn the writing direction become question marks."""
    assert client_name(said) == kept


@given(st.one_of(st.text(max_size=600), st.binary(max_size=600)))
def test_client_name_is_bounded_and_can_be_shown(said: str | bytes) -> None:
    """Whatever a client says of itself, a terminal and a page can show it, and it is never long."""
    name = client_name(said)
    assert len(name) <= CLIENT_NAME_MAX
    assert name.isprintable()


def test_client_name_of_long_characters_is_whole() -> None:
    """The bound counts characters, not bytes: a name in four-byte characters is not cut within one."""
    assert client_name("🐟".encode() * 100) == client_name("🐟" * 100) == "🐟" * CLIENT_NAME_MAX


def test_name_that_is_no_utf8_is_shown_as_one_that_nothing_has() -> None:
    """A group that is asked for by such bytes is unknown, and is not that of another name."""
    assert shown(b"g\xff") == "g\\xff"
    assert text_or_none(b"g\xff") is None
    assert (shown("grün".encode()), text_or_none("grün".encode())) == ("grün", "grün")


@pytest.mark.parametrize(("field", "name"), [(1, "topic"), (2, "key"), (5, "tags"), (8, "version")])
def test_text_of_a_message_that_is_no_utf8_is_refused_by_its_name(field: int, name: str) -> None:
    """The producer learns which field it is."""
    check_text(b"fine", field)
    with pytest.raises(TextError, match=name):
        check_text(b"\xff", field)


def test_property_that_is_no_utf8_is_refused_by_its_name() -> None:
    """A bad name is shown as bytes, a bad value with the name of its property."""
    check_pairs([b"a"], [b"b"])
    with pytest.raises(TextError, match="name b'\\\\xff' of a property"):
        check_pairs([b"a", b"\xff"], [b"b", b"b"])
    with pytest.raises(TextError, match="value of the property 'a'"):
        check_pairs([b"a"], [b"\xff"])
