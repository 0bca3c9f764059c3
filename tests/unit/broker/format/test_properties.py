"""RocketMQ's property block."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.errors import MessageRefused
from broker.format.properties import BATCH_NAME, CRC_NAME, encode_properties, find_property, parse_properties
from broker.format.record import batch_property, crc_property

TEXT = st.text(st.characters(exclude_characters="\x01\x02", exclude_categories=["Cs"]), max_size=12)
PAIRS = st.dictionaries(TEXT.filter(lambda name: name not in ("", CRC_NAME, BATCH_NAME)), TEXT, max_size=5)
"""Hypothesis also draws constants of the code under test: the broker's own names, which are not shown."""


@given(PAIRS)
def test_properties_come_back(pairs: dict[str, str]) -> None:
    """What was encoded is decoded; empty values are dropped as RocketMQ drops them."""
    block = encode_properties(pairs)
    kept = {name: value for name, value in pairs.items() if value}
    assert parse_properties(block) == kept
    for name in pairs:
        wanted = kept.get(name)
        assert find_property(block, name.encode()) == (wanted.encode() if wanted else None)


def test_own_properties_are_not_shown() -> None:
    """The batch mark and the sum are the broker's business."""
    assert parse_properties(b"a\x01b\x02" + batch_property(0, 2) + crc_property(7)) == {"a": "b"}


@pytest.mark.parametrize("pairs", [{"a\x01": "b"}, {"a": "b\x02c"}, {"a": "\x01"}, {"": "x"}])
def test_separators_and_empty_names_are_refused(pairs: dict[str, str]) -> None:
    """A separator inside a name or value would shift all that follows (D7)."""
    with pytest.raises(MessageRefused) as refusal:
        encode_properties(pairs)
    assert refusal.value.code == 11


def test_damaged_block_is_decoded_as_far_as_it_goes() -> None:
    """A reader is never stopped by a foreign block."""
    assert parse_properties(b"a\x01b\x02novalue\x02c\x01\x02d\x01\xff") == {"a": "b", "d": "�"}
    assert find_property(b"aa\x01b\x02a\x01c", b"a") == b"c"
    assert find_property(b"", b"a") is None
