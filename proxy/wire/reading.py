"""What the scanners ask of a protocol, and passing over what they have no use for: the same walk in both.

`compact.READING` and `binary.READING` are the two. All functions take a frame and a position and return the position
behind what they read. Reading beyond the frame ends in an ArgumentsError, an IndexError or a struct.error; whoever
calls a scanner turns the latter two into the first.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from proxy.wire.errors import ArgumentsError
from proxy.wire.limits import DEPTH_MAX
from proxy.wire.steps import Steps

STOP = 0
"""What ends a struct, in both protocols."""

_Numbers = list[int]


class ProtocolReader(NamedTuple):
    """How a protocol is read.

    Attributes:
        flags: Types of a field that is a bool.
        i32: Type of 32-bit numbers; `i64`, `text` (also binaries), `struct`, `list`, `set`, `map` likewise.
        fixed: How many bytes an element of a container has, by type, where all have the same.
        varints: Types of numbers whose length is seen in the reading.
        codes: Types by those of TBinaryProtocol.
        header: Reads the header of a field, given the field id before it: type, field id, position. A field that does
            not come after the last one takes a step.
        flag: Reads the value of a field that is a bool, given its type.
        read_i32: Reads a number; `read_i64` likewise, and `read_i64s` so many.
        span: Finds where a text begins and ends.
        list_header: Reads type and count of a list's or set's elements; the frame has room for so many.
        map_header: Reads the types of keys and values, and their count.
    """

    flags: tuple[int, ...]
    i32: int
    i64: int
    text: int
    struct: int
    list: int
    set: int
    map: int
    fixed: Mapping[int, int]
    varints: tuple[int, ...]
    codes: Mapping[int, int]
    header: Callable[[bytes, int, int, Steps], tuple[int, int, int]]
    flag: Callable[[bytes, int, int], tuple[bool, int]]
    read_i32: Callable[[bytes, int], tuple[int, int]]
    read_i64: Callable[[bytes, int], tuple[int, int]]
    read_i64s: Callable[[bytes, int, int], tuple[_Numbers, int]]
    span: Callable[[bytes, int], tuple[int, int]]
    list_header: Callable[[bytes, int], tuple[int, int, int]]
    map_header: Callable[[bytes, int], tuple[int, int, int, int]]

    def read_text(self, frame: bytes, pos: int) -> tuple[bytes, int]:
        """Read a text or binary."""
        start, end = self.span(frame, pos)
        return frame[start:end], end

    def skip(self, frame: bytes, pos: int, kind: int, steps: Steps, depth: int = 1) -> int:
        """Pass over the value of a field; returns the position after it.

        Args:
            frame: The frame.
            pos: Where the value begins.
            kind: Its type code as in a field header.
            steps: Those of the frame; each field and each element that is looked at takes one.
            depth: Levels this value is inside of, counting the struct that holds it.

        Raises:
            ArgumentsError: An unknown type, a container larger than the frame, or deeper than DEPTH_MAX, or too many
                steps.
            IndexError: The frame ends before the value.
        """
        steps.take()
        if kind in self.flags:
            return self.flag(frame, pos, kind)[1]
        return self._skip_value(frame, pos, kind, steps, depth)

    def skip_elements(  # noqa: PLR0917 - as skip
        self, frame: bytes, pos: int, kinds: tuple[int, ...], count: int, steps: Steps, depth: int = 1
    ) -> int:
        """Pass over `count` elements (pairs, for a map) of a container; returns the position after them."""
        if all(kind in self.fixed for kind in kinds):
            return pos + count * sum(self.fixed[kind] for kind in kinds)
        steps.take(count)
        for _ in range(count):
            for kind in kinds:
                pos = self._skip_value(frame, pos, kind, steps, depth)
        return pos

    def _skip_value(self, frame: bytes, pos: int, kind: int, steps: Steps, depth: int) -> int:
        size = self.fixed.get(kind)
        if size is not None:
            return pos + size
        if kind in self.varints:
            return self.read_i64(frame, pos)[1]
        if kind == self.text:
            return self.span(frame, pos)[1]
        if depth >= DEPTH_MAX:
            raise ArgumentsError(f"values nested more than {DEPTH_MAX} deep")
        if kind == self.struct:
            last = 0
            while True:
                field_kind, last, pos = self.header(frame, pos, last, steps)
                if field_kind == STOP:
                    return pos
                pos = self.skip(frame, pos, field_kind, steps, depth + 1)
        if kind in (self.list, self.set):
            element, count, pos = self.list_header(frame, pos)
            return self.skip_elements(frame, pos, (element,), count, steps, depth + 1)
        if kind == self.map:
            key, value, count, pos = self.map_header(frame, pos)
            return self.skip_elements(frame, pos, (key, value), count, steps, depth + 1)
        raise ArgumentsError(f"a value of the unknown type {kind}")
