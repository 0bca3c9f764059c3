"""What a producer may put into a message, and its property block as RocketMQ stores it (R91, D7, D34)."""

from __future__ import annotations

from broker.format.properties import LETTER_PROPERTIES, PRIVATE_PREFIX, SYSTEM_PROPERTIES
from proxy.wire.texts import fitted, shown
from proxy.wire.values import Properties
from pyddmq.codes import ResultCode

KEY_CHARS_MAX = 255
TAGS_CHARS_MAX = 255
PROPERTIES_BYTES_MAX = 32_767 - 128
"""RocketMQ's block limit less what the broker adds: UNIQ_KEY, the batch mark and the sum."""

RESERVED_PROPERTIES = SYSTEM_PROPERTIES.union(LETTER_PROPERTIES)
"""R91 and D34: names of the broker's own, refused as user properties together with those below."""

RESERVED_PREFIXES = (b"TIMER_", PRIVATE_PREFIX, b"PYDDMQ_")

_SETS_MAX = 1024
_SET_BYTES_MAX = 1024


class Refusal(Exception):
    """A message that is not stored: a result code and a sentence.

    Attributes:
        after_ms: When it may be sent again; None where no moment is known.
    """

    def __init__(self, code: ResultCode, text: str, *, after_ms: int | None = None) -> None:
        self.code = code
        self.text = fitted(text)
        self.after_ms = after_ms
        super().__init__(self.text)


class Limited(Refusal):
    """A message above a rate.

    Attributes:
        retry_ms: When it may be tried once more (limiterFailureRetryInterval): 0 not at all, -1 as its timeout allows.
    """

    def __init__(self, text: str, retry_ms: int, *, after_ms: int | None = None) -> None:
        self.retry_ms = retry_ms
        super().__init__(ResultCode.FAIL_REFUSED_BY_RATE_LIMITER, text, after_ms=after_ms)


class PropertyRules:
    """Makes property blocks; sets of names that passed once are remembered, since producers use few.

    Attributes:
        good: By such a set, its pairs with gaps for the values.
    """

    def __init__(self) -> None:
        self.good: dict[tuple[bytes, ...], bytes] = {}

    def block(self, key: bytes | None, tags: bytes | None, properties: Properties | None) -> bytes:
        """Return the block of a message: KEYS and TAGS first, then the user's own in the order given.

        Raises:
            Refusal: Something is too long, reserved, blank, or holds one of the block's own separators.
        """
        pairs = 0
        block = b""
        if key:
            if len(key) > KEY_CHARS_MAX and len(key.decode()) > KEY_CHARS_MAX:
                raise _illegal(f"the key is longer than {KEY_CHARS_MAX} characters")
            pairs = 1
        if tags:
            if len(tags) > TAGS_CHARS_MAX and len(tags.decode()) > TAGS_CHARS_MAX:
                raise _illegal(f"the tags are longer than {TAGS_CHARS_MAX} characters")
            pairs += 1
        if properties:
            names, values = properties
            for value in values:
                if not value or value.isspace():
                    raise _illegal(f"property {shown(names[values.index(value)])!r} has a blank value")
            pairs += len(values)
            block = (self.good.get(names) or self._check_names(names)) % values
        if key and tags:
            block = b"KEYS\x01%b\x02TAGS\x01%b\x02%b" % (key, tags, block)
        elif key:
            block = b"KEYS\x01%b\x02%b" % (key, block)
        elif tags:
            block = b"TAGS\x01%b\x02%b" % (tags, block)
        # Two separators for a pair mean that no name or value brought its own (D7).
        if len(block) - len(block.translate(None, b"\x01\x02")) != 2 * pairs:
            raise _illegal("key, tags, property names and values must not contain the characters 0x01 and 0x02")
        if len(block) > PROPERTIES_BYTES_MAX:
            raise _illegal(f"key, tags and properties have {len(block)} bytes; the limit is {PROPERTIES_BYTES_MAX}")
        return block

    def _check_names(self, names: tuple[bytes, ...]) -> bytes:
        """Return the pairs of these names with a gap for each value, as `%` fills it."""
        for name in names:
            if name in RESERVED_PROPERTIES or name.startswith(RESERVED_PREFIXES):
                raise _illegal(f"property {shown(name)!r} is reserved by the broker; choose another name")
            if not name.strip():
                raise _illegal("a property has a blank name")
        pairs = b"".join([name.replace(b"%", b"%%") + b"\x01%b\x02" for name in names])
        if len(self.good) < _SETS_MAX and len(pairs) <= _SET_BYTES_MAX:
            self.good[names] = pairs
        return pairs


def _illegal(text: str) -> Refusal:
    return Refusal(ResultCode.FAIL_ILLEGAL_MSG, text)
