"""Kafka's keys and headers as a message's key, tag and properties, and back (D58).

A Kafka header has a name, which may repeat, and bytes or null. A property has one text, and RocketMQ's block of them
holds neither an empty one nor the characters 0x01 and 0x02. So a header's property is named after it, and

- `name#2`, `name#3`, ... stand for the second one of its name and so on,
- `name;base64` for bytes that a property cannot hold (not UTF-8, or with 0x01 or 0x02), in Base64,
- `name;null` and `name;empty`, with `null` and `empty` as text, for null and for no bytes.

Where a header's own name looks like one of these, or is one of the broker's own names, `#1` behind it says that it is
meant as it is. It does so only where it would be misread, so that the property `order#2` of a producer that has
none called `order` comes to its consumer by that name.

Promises, for all that Kafka can hold: `encode` makes of what `decode` gave the same key and, name by name, the same
headers, but for those whose name is empty or holds 0x01 or 0x02: `unnamable` counts these, and they are left out. No
two headers become one property. The other way round, what a producer gives comes to consumers as it was, unless a name
has two of these endings, or one of those with `;` beside another property of the name in front of it.

Apart from the rest: the header `TAGS` is the tag, and `UNIQ_KEY` the message's id where it has RocketMQ's form, each
where there is one of its name. A key that is not text is its Base64 as text, beside the property `KEYS;base64`. No
header is a fact of the broker's own: any client writes to Kafka what it likes. Properties that begin with `__PYDDMQ_`
are hidden from consumers all the same.
"""

from __future__ import annotations

import re
from base64 import b64decode, b64encode
from binascii import Error as NotBase64
from collections import Counter
from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from typing import NamedTuple

from broker.format.properties import is_system_property
from upstream.kafka.link import Headers, KafkaRecord

TAG_NAME = "TAGS"
ID_NAME = "UNIQ_KEY"
KEY_NAME = "KEYS"

_BASE64 = ";base64"
_WORDS: Mapping[str, tuple[str, bytes | None]] = {";null": ("null", None), ";empty": ("empty", b"")}
_NUMBERED = re.compile(r"(.+)#([1-9][0-9]{0,8})", re.DOTALL)
_KIND = re.compile(r"(.+);(?:base64|null|empty)", re.DOTALL)
_UNIQUE_KEY = re.compile(rb"[0-9A-F]{32}")
"""RocketMQ's form of an id."""
_SEPARATORS = re.compile(r"[\x01\x02]")
_SEPARATOR_BYTES = re.compile(rb"[\x01\x02]")


class Decoded(NamedTuple):
    """What a record is as a message.

    Attributes:
        key: Its key; "": none.
        tag: Its tag; "": none.
        properties: By name, without empty values; `UNIQ_KEY` is among them where it has one, key and tag are not.
    """

    key: str
    tag: str
    properties: dict[str, str]


def decode(record: KafkaRecord) -> Decoded:
    """Return key, tag and properties of a record, whatever its key and headers are."""
    properties: dict[str, str] = {}
    key = _decode_key(record.key, properties)
    headers = record.headers
    if not headers:
        return Decoded(key, "", properties)
    read = [(name, *_as_text(value)) for name, value in headers if not _unnamable(name)]
    counts = Counter([name for name, _, _ in read])
    kinds = {name + kind for name, _, kind in read if kind}
    tag = ""
    seen: dict[str, int] = {}
    for name, text, kind in read:
        if not kind and counts[name] == 1:
            if name == TAG_NAME:
                tag = text
                continue
            if name == ID_NAME and _UNIQUE_KEY.fullmatch(text.encode()):
                properties[name] = text
                continue
        number = seen[name] = seen.get(name, 0) + 1
        guarded = number > 1 or (_odd(name) and _misread(name, text, kind, counts, kinds))
        properties[f"{name}#{number}{kind}" if guarded else name + kind] = text
    return Decoded(key, tag, properties)


def property_block(record: KafkaRecord) -> bytes:
    """Return the same in RocketMQ's form: `name 01 value 02`, KEYS and TAGS first."""
    key, tag, properties = decode(record)
    pairs = [f"{name}\x01{value}\x02" for name, value in properties.items()]
    if tag:
        pairs.insert(0, f"{TAG_NAME}\x01{tag}\x02")
    if key:
        pairs.insert(0, f"{KEY_NAME}\x01{key}\x02")
    return "".join(pairs).encode("utf-8", "surrogatepass")


def unnamable(headers: Headers) -> int:
    """Return how many headers no property can be named after: they are left out."""
    return sum([_unnamable(name) for name, _ in headers])


def message_id(record: KafkaRecord) -> str:
    """Return the id that its producer gave a record; "" where it gave none."""
    ids = [value for name, value in record.headers if name == ID_NAME]
    if len(ids) == 1 and ids[0] is not None and _UNIQUE_KEY.fullmatch(ids[0]):
        return ids[0].decode()
    return ""


def encode(
    key: str, tag: str, properties: Mapping[str, str], unique_key: str = ""
) -> tuple[bytes | None, list[tuple[str, bytes | None]]]:
    """Return Kafka's key and headers of a message.

    Args:
        key: Its key; "": none.
        tag: Its tag; "": none.
        properties: By name.
        unique_key: Its id, where it is not among the properties.
    """
    key_bytes, used = _encode_key(key, properties)
    headers: list[tuple[str, bytes | None]] = []
    if tag:
        headers.append((TAG_NAME, tag.encode("utf-8", "surrogatepass")))
    if unique_key:
        headers.append((ID_NAME, unique_key.encode()))
    plain = True
    rest: list[tuple[str, bytes | None]] = []
    for name, text in properties.items():
        if name == used:
            continue
        if "#" in name or ";" in name:
            plain = False
            rest.append(_value_of(name, text))
        else:
            rest.append((name, text.encode("utf-8", "surrogatepass")))
    headers += rest if plain else _numbered(rest)
    return key_bytes, headers


# Keys


def _decode_key(key: bytes | None, properties: dict[str, str]) -> str:
    if key is None:
        return ""
    text, kind = _as_text(key)
    if kind:
        properties[KEY_NAME + kind] = text
    return "" if kind == ";empty" else text


def _encode_key(key: str, properties: Mapping[str, str]) -> tuple[bytes | None, str]:
    """Return a key's bytes and the name of the property that says them; "": none does."""
    if not key:
        empty = KEY_NAME + ";empty"
        return (b"", empty) if properties.get(empty) == "empty" else (None, "")
    name = KEY_NAME + _BASE64
    if properties.get(name) == key:
        value = _of_base64(key)
        if value is not None:
            return value, name
    return key.encode("utf-8", "surrogatepass"), ""


# Values


def _as_text(value: bytes | None) -> tuple[str, str]:
    """Return the text of a value, and the ending that says how it is meant."""
    if value is None:
        return "null", ";null"
    if not value:
        return "empty", ";empty"
    if not _SEPARATOR_BYTES.search(value):
        try:
            return value.decode(), ""
        except UnicodeDecodeError:
            pass
    return b64encode(value).decode(), _BASE64


def _of_base64(text: str) -> bytes | None:
    """Return the value of a text that `_as_text` made; None: it did not."""
    try:
        value = b64decode(text, validate=True)
    except (NotBase64, ValueError):
        return None
    return value if _as_text(value) == (text, _BASE64) else None


def _value_of(name: str, text: str) -> tuple[str, bytes | None]:
    """Take the ending off a name that says how its text is meant, where it does."""
    if name.endswith(_BASE64) and len(name) > len(_BASE64):
        value = _of_base64(text)
        if value is not None:
            return name[: -len(_BASE64)], value
    for ending, (word, meant) in _WORDS.items():
        if text == word and name.endswith(ending) and len(name) > len(ending):
            return name[: -len(ending)], meant
    return name, text.encode("utf-8", "surrogatepass")


# Names


def _unnamable(name: str) -> bool:
    return not name or _SEPARATORS.search(name) is not None


def _reserved(name: str) -> bool:
    """Whether a property of that name would be the broker's own, or looks like the key's."""
    return is_system_property(name.encode("utf-8", "surrogatepass")) or name.startswith(KEY_NAME + ";")


def _odd(name: str) -> bool:
    """Whether a name may be taken for another one's with an ending, or for one of the broker's own."""
    if ("#" in name or ";" in name) and (_NUMBERED.fullmatch(name) or _KIND.fullmatch(name)):
        return True
    return _reserved(name)


def _misread(name: str, text: str, kind: str, counts: Mapping[str, int], kinds: AbstractSet[str]) -> bool:
    """Whether an odd name, as it is, would be read as another, or may become that of another header.

    Args:
        name, text, kind: Of the header.
        counts: How many there are of each name.
        kinds: Names with the endings that say how their values are meant.
    """
    if counts[name] > 1 or _reserved(name):
        return True
    numbered = _NUMBERED.fullmatch(name)
    if numbered:
        base, number = numbered[1], int(numbered[2])
        if number == 1:
            return _odd(base)
        return number <= counts.get(base, 0) + 1
    if kind:
        return False
    if name in kinds or _value_of(name, text)[0] != name:
        return True
    front, _, ending = name.rpartition(";")
    first = _NUMBERED.fullmatch(front)
    return first is not None and f"{first[1]};{ending}" in kinds


def _numbered(values: Iterable[tuple[str, bytes | None]]) -> list[tuple[str, bytes | None]]:
    """Take the numbers off names: those that count on from the first of their name, and `#1` where it guards one."""
    values = list(values)
    names = {name for name, _ in values}
    runs: dict[str, int] = {}

    def run(base: str) -> int:
        """How many of a name there are, counted on from the first."""
        known = runs.get(base)
        if known is None:
            known = 0
            if (f"{base}#1" if _odd(base) else base) in names:
                known = 1
                while f"{base}#{known + 1}" in names:
                    known += 1
            runs[base] = known
        return known

    placed: list[tuple[str, int, bytes | None]] = []
    for name, value in values:
        numbered = _NUMBERED.fullmatch(name)
        base, number = name, 1
        if numbered:
            found, place = numbered[1], int(numbered[2])
            if _odd(found) if place == 1 else place <= run(found):
                base, number = found, place
        placed.append((base, number, value))
    # Of one name in their order, whatever order a map gave; between names the order says nothing.
    placed.sort(key=lambda each: each[1])
    return [(name, value) for name, _, value in placed]
