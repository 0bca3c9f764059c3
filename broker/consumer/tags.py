"""Tag expressions: `*`, or tags separated by `||` (reference 8.5)."""

from __future__ import annotations

from broker.format.java import tags_code
from broker.format.properties import find_property

ALL = "*"


class TagExpression:
    """Which tags a consumer wants: the code in the queue's unit decides first, then the text, since codes may collide.

    Empty, blank and `*` mean all messages, also those without a tag (RocketMQ: FilterAPI).
    """

    def __init__(self, text: str = ALL) -> None:
        words = frozenset(word.strip().encode() for word in text.split("||")) - {b""}
        self.text = text
        self.tags = None if text.strip() in ("", ALL) else words
        self._codes = None if self.tags is None else frozenset(tags_code(tag) for tag in self.tags)
        if self.tags is not None and not self.tags:
            raise ValueError(f"invalid tag expression {text!r}; write `*`, or tags separated by `||`")

    def may_match(self, code: int) -> bool:
        """Whether a message with this tags code can be wanted."""
        return self._codes is None or code in self._codes

    def matches(self, block: bytes) -> bool:
        """Whether the message with this property block is wanted."""
        return self.tags is None or find_property(block, b"TAGS") in self.tags
