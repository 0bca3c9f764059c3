"""Kafka's keys and headers as key, tag and properties, and back."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from broker.format.properties import find_property, is_system_property, parse_properties
from upstream.kafka.headers import decode, encode, message_id, property_block, unnamable
from upstream.kafka.link import KafkaRecord

ID = "C0A80001000018B4AAC27D9E3C5A0001"

# Few parts, so that names meet their own endings.
_endings = st.sampled_from(["", "#1", "#2", "#3", ";base64", ";null", ";empty", "#02"])
_bases = st.sampled_from(["a", "b", "TAGS", "KEYS", "UNIQ_KEY", "REAL_TOPIC", "__PYDDMQ_x", "#", ";"])
_names = st.builds(lambda base, *ends: base + "".join(ends), _bases, _endings, _endings) | st.text(max_size=3)
_values = (
    st.none()
    | st.sampled_from([b"", b"x", b"/w==", b"null", b"empty", b"\xff", b"\x01", b"AQ==", ID.encode()])
    | st.binary(max_size=3)
)
_headers = st.lists(st.tuples(_names, _values), max_size=7)
_keys = st.none() | st.sampled_from([b"", b"k", b"\xff", b"/w==", b"\x02"]) | st.binary(max_size=4)


def _record(headers: Sequence[tuple[str, bytes | None]], key: bytes | None = None) -> KafkaRecord:
    return KafkaRecord("orders", 0, 7, 1, key, b"body", headers)


def _by_name(headers: Sequence[tuple[str, bytes | None]]) -> dict[str, list[bytes | None]]:
    found: dict[str, list[bytes | None]] = {}
    for name, value in headers:
        found.setdefault(name, []).append(value)
    return found


@given(_headers, _keys)
@example([("a", b"1"), ("a", b"2"), ("a#2", b"3")], None)
@example([("a", b"\xff"), ("a;base64", b"zz")], b"\xff")
def test_decode_is_undone_by_encode(headers: list[tuple[str, bytes | None]], key: bytes | None) -> None:
    """Key and headers are the same again, name by name, but for names that no property can have."""
    decoded = decode(_record(headers, key))
    key_again, headers_again = encode(decoded.key, decoded.tag, decoded.properties)
    namable = [(name, value) for name, value in headers if name and "\x01" not in name and "\x02" not in name]
    assert key_again == key
    assert _by_name(headers_again) == _by_name(namable)
    assert unnamable(headers) == len(headers) - len(namable)


@given(_headers, _keys)
def test_property_block_holds_what_was_decoded(headers: list[tuple[str, bytes | None]], key: bytes | None) -> None:
    """The block reads back as the same properties, and none is a fact of the broker's own."""
    record = _record(headers, key)
    decoded = decode(record)
    block = property_block(record)
    pairs = parse_properties(block)
    assert pairs.pop("KEYS", "") == decoded.key
    assert pairs.pop("TAGS", "") == decoded.tag
    assert pairs == decoded.properties
    assert block.count(b"\x01") == block.count(b"\x02") == len(pairs) + bool(decoded.key) + bool(decoded.tag)
    system = {name for name in pairs if is_system_property(name.encode("utf-8", "surrogatepass"))}
    # A number makes a name of the broker's own another one, which nothing reads.
    assert {name for name in system if "#" not in name} <= {"UNIQ_KEY"}


def _are_left_out(names: list[str]) -> bool:
    """Whether the promise leaves them out: two endings, or several properties of one name besides their numbers."""
    fronts = [name.partition(";")[0] for name in names]
    several = any(";" in name and fronts.count(name.partition(";")[0]) > 1 for name in names)
    return several or any(name.count("#") + name.count(";") > 1 for name in names)


_given = st.dictionaries(
    st.text("ab#;2", min_size=1, max_size=4) | st.sampled_from(["order#2", "a;base64", "a;null"]),
    st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x01\x02"), min_size=1, max_size=3)
    | st.sampled_from(["/w==", "null"]),
    max_size=5,
).filter(lambda each: not _are_left_out(list(each)))


@given(_given, st.text("abc", max_size=2), st.text("abc", max_size=2))
def test_what_a_producer_gives_comes_as_it_was(properties: dict[str, str], key: str, tag: str) -> None:
    """Key, tag, id and properties with at most one ending are those of the producer again."""
    key_bytes, headers = encode(key, tag, properties, ID)
    decoded = decode(_record(headers, key_bytes))
    assert decoded == (key, tag, {**properties, "UNIQ_KEY": ID})


@pytest.mark.parametrize(
    ("headers", "properties"),
    [
        pytest.param([("a", b"x"), ("a", b"y")], {"a": "x", "a#2": "y"}, id="repeated"),
        pytest.param([("a", b"\xff")], {"a;base64": "/w=="}, id="binary"),
        pytest.param([("a", b"x\x02y")], {"a;base64": "eAJ5"}, id="separator"),
        pytest.param([("a", None)], {"a;null": "null"}, id="null"),
        pytest.param([("a", b"")], {"a;empty": "empty"}, id="empty"),
        pytest.param([("a", b"x"), ("a", None)], {"a": "x", "a#2;null": "null"}, id="repeated-null"),
        pytest.param([("order#2", b"x")], {"order#2": "x"}, id="looks-repeated"),
        pytest.param([("a", b"1"), ("a#2", b"2")], {"a": "1", "a#2#1": "2"}, id="would-be-misread"),
        pytest.param([("REAL_TOPIC", b"x")], {"REAL_TOPIC#1": "x"}, id="broker's-own"),
        pytest.param([("UNIQ_KEY", b"x")], {"UNIQ_KEY#1": "x"}, id="no-id"),
        pytest.param([("UNIQ_KEY", ID.encode())], {"UNIQ_KEY": ID}, id="id"),
        pytest.param([("a\x01b", b"x"), ("", b"y")], {}, id="unnamable"),
    ],
)
def test_headers_as_properties(headers: list[tuple[str, bytes | None]], properties: dict[str, str]) -> None:
    """The forms of docs/kafka.md."""
    assert decode(_record(headers)).properties == properties


def test_block_begins_with_key_and_tag() -> None:
    """In RocketMQ's form, as the embedded broker writes it."""
    _, headers = encode("K", "T", {"a": "1"}, ID)
    record = _record(headers, b"K")
    assert property_block(record) == b"KEYS\x01K\x02TAGS\x01T\x02UNIQ_KEY\x01%b\x02a\x011\x02" % ID.encode()
    assert find_property(property_block(record), b"KEYS") == b"K"
    assert message_id(record) == ID
    assert not message_id(_record([("UNIQ_KEY", b"x")]))
