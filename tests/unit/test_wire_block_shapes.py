"""Blocks cut by their shape give the same replies as blocks taken apart token by token."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.format.record import locate
from proxy.wire import COMPACT, Call, encode_pull_reply
from proxy.wire.block_shapes import BlockShapes
from proxy.wire.pull_reply import _shapes, take_apart
from tests.leaf_ways import running
from tests.wire_values import block, broker_end, record

CALL = Call(COMPACT, "pull", 1, 0, b"")
NAMES = ("KEYS", "TAGS", "a", "origin", "traceId", "_x", "DELAY", "x" * 140)
BYTES = st.sampled_from(b"kv01\x01\x02\x7f\x80\xff_")


@pytest.fixture(autouse=True)
def _own_shapes() -> Iterator[None]:
    """The leaf, which knows no shapes, does not run."""
    with running("pure"):
        yield


def reply(messages: list[tuple[int, Any]]) -> bytes:
    """Encode the reply that holds these messages."""
    return encode_pull_reply(CALL, b"g", b"t", b"q", messages)


def likely(values: list[str], names: list[str], batch: bool) -> bytearray:
    """Return a block as this broker stores it."""
    pairs = [(name.encode(), value.encode()) for name, value in zip(names, values, strict=True)]
    return bytearray(block(pairs) + broker_end(batch))


@st.composite
def alike(draw: st.DrawFn) -> list[bytes]:
    """Draw blocks with the same names and lengths, some of them with bytes changed anywhere."""
    names = draw(st.lists(st.sampled_from(NAMES), max_size=5, unique=True))
    lengths = [draw(st.sampled_from((1, 2, 5, 127, 128, 300))) for _ in names]
    batch = draw(st.booleans())
    blocks = []
    for letter in draw(st.text("abcdef", min_size=2, max_size=6)):
        found = likely([letter * length for length in lengths], names, batch)
        for _ in range(draw(st.sampled_from((0, 0, 1, 2)))):
            found[draw(st.integers(0, len(found) - 1))] = draw(BYTES)
        blocks.append(bytes(found))
    return blocks


@given(alike(), st.integers(0, 1 << 40))
def test_a_reply_by_shapes_is_the_reply_without_them(blocks: list[bytes], first: int) -> None:
    """Whatever stands in a block of a known length, what was learned before changes nothing in the reply."""
    messages = [(first + place, locate(record(b"b" * place, each))) for place, each in enumerate(blocks)]
    _shapes.by_length.clear()
    learned = [reply([message]) for message in (*messages, *messages)][len(messages) :]
    alone = []
    for message in messages:
        _shapes.by_length.clear()
        alone.append(reply([message]))
    assert learned == alone


def test_a_block_of_our_own_is_learned_and_cut_into_names_and_values() -> None:
    """The second message of a kind is cut by the shape of the first."""
    shapes = BlockShapes()
    first = bytes(likely(["k1", "created", "x"], ["KEYS", "TAGS", "a"], batch=True))
    shapes.learn(first, *take_apart(first))
    shape = shapes.by_length[len(first)]
    second = bytes(likely(["k2", "changed", "y"], ["KEYS", "TAGS", "a"], batch=True))
    pieces = shape.cut(second)
    assert pieces[::2] == shape.names
    assert pieces[1:6:2] == (b"k2", b"changed", b"y")


def test_a_shape_that_keeps_failing_is_replaced() -> None:
    """A producer that changes its names is served fast again, after a while."""
    shapes = BlockShapes()
    old = bytes(likely(["k1", "x"], ["KEYS", "a"], batch=False))
    new = bytes(likely(["k1", "x"], ["KEYS", "b"], batch=False))
    shapes.learn(old, *take_apart(old))
    replaced = 0
    while b"\x02b\x01" not in shapes.by_length[len(new)].names:
        shapes.learn(new, *take_apart(new))
        replaced += 1
    assert 1 < replaced < 100


def test_many_lengths_keep_memory_bounded() -> None:
    """However many lengths come, only some shapes are kept; a long block leaves none."""
    shapes = BlockShapes()
    for size in range(1, 1_500):
        each = bytes(likely(["k" * size], ["KEYS"], batch=False))
        shapes.learn(each, *take_apart(each))
    assert 0 < len(shapes.by_length) <= 512
    known = len(shapes.by_length)
    long = bytes(likely(["k" * 5_000], ["KEYS"], batch=False))
    shapes.learn(long, *take_apart(long))
    assert len(shapes.by_length) == known
