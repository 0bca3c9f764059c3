"""Property blocks and what they refuse."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.format.properties import SYSTEM_PROPERTIES, parse_properties
from proxy.services.message_rules import PROPERTIES_BYTES_MAX, RESERVED_PROPERTIES, PropertyRules, Refusal
from proxy.wire.values import Properties
from pyddmq.codes import ResultCode

texts = st.one_of(st.text("ab% \x01\x02é", max_size=4), st.text(max_size=3)).map(
    lambda text: text.encode("utf-8", "replace")
)
pairs = st.lists(st.tuples(texts, texts), max_size=3)
rules = PropertyRules()


def apart(properties: list[tuple[bytes, bytes]]) -> Properties:
    """Return pairs as the scanners do: names, and values."""
    return tuple(name for name, _ in properties), tuple(value for _, value in properties)


def is_good(key: bytes | None, tags: bytes | None, properties: list[tuple[bytes, bytes]] | None) -> bool:
    """Whether a message may be stored, the plain way."""
    shown = [key or b"", tags or b"", *(text for pair in properties or () for text in pair)]
    if any(1 in text or 2 in text for text in shown):
        return False
    return all(
        name.strip() and value.strip() and not name.startswith((b"TIMER_", b"__PYDDMQ_", b"PYDDMQ_"))
        for name, value in properties or ()
    )


@given(st.none() | texts, st.none() | texts, st.none() | pairs)
def test_block_holds_what_was_given_or_is_refused(
    key: bytes | None, tags: bytes | None, properties: list[tuple[bytes, bytes]] | None
) -> None:
    """KEYS and TAGS first, then the user's pairs in order; separators and blank parts are refused."""
    if not is_good(key, tags, properties):
        with pytest.raises(Refusal) as caught:
            rules.block(key, tags, None if properties is None else apart(properties))
        assert caught.value.code == ResultCode.FAIL_ILLEGAL_MSG
        return
    own = [(b"KEYS", key or b""), (b"TAGS", tags or b"")]
    expected = [pair for pair in own if pair[1]] + (properties or [])
    assert rules.block(key, tags, None if properties is None else apart(properties)) == b"".join(
        b"%b\x01%b\x02" % pair for pair in expected
    )


def test_block_reads_back() -> None:
    """What a consumer parses is what the producer gave."""
    block = rules.block(b"k", b"t", apart([(b"traceId", b"5f"), ("größe".encode(), b"1 2")]))
    assert parse_properties(block) == {"KEYS": "k", "TAGS": "t", "traceId": "5f", "größe": "1 2"}


@pytest.mark.parametrize("name", [*sorted(RESERVED_PROPERTIES), b"TIMER_x", b"__PYDDMQ_x", b"PYDDMQ_"])
def test_block_with_a_name_of_the_brokers_own_refused(name: bytes) -> None:
    """R91 and D34; asked twice, since good names are remembered."""
    for _ in range(2):
        with pytest.raises(Refusal, match="reserved by the broker"):
            rules.block(None, None, apart([(name, b"v")]))


def test_block_beyond_its_lengths_refused() -> None:
    """255 characters, not bytes, of key and tags; the whole block has a limit of its own."""
    assert len(rules.block("é".encode() * 255, "é".encode() * 255, None)) == 2 * (5 + 510 + 1)
    with pytest.raises(Refusal, match="the key is longer"):
        rules.block(b"k" * 256, None, None)
    with pytest.raises(Refusal, match="the tags are longer"):
        rules.block(None, b"t" * 256, None)
    fitting = b"v" * (PROPERTIES_BYTES_MAX - 3)
    assert len(rules.block(None, None, apart([(b"n", fitting)]))) == PROPERTIES_BYTES_MAX
    with pytest.raises(Refusal, match="the limit is"):
        rules.block(None, None, apart([(b"n", fitting + b"v")]))


def test_names_without_end_stay_bounded() -> None:
    """Only so many good names are remembered; the others work as well."""
    own = PropertyRules()
    for number in range(5000):
        assert own.block(None, None, apart([(b"n%d" % number, b"v")])) == b"n%d\x01v\x02" % number
    assert len(own.good) == 1024
    long = b"n" * 2000
    assert PropertyRules().block(None, None, ((long,), (b"v",))) == long + b"\x01v\x02"


@pytest.mark.parametrize("name", sorted(SYSTEM_PROPERTIES | {b"__PYDDMQ_X"}))
def test_property_that_consumers_would_never_see_is_refused(name: bytes) -> None:
    """What a producer's message may hold is handed out: a name that pulls hide is refused at the door (D34)."""
    with pytest.raises(Refusal, match="reserved by the broker"):
        PropertyRules().block(None, None, apart([(name, b"x")]))
