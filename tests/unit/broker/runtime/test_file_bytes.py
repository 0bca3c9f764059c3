"""The bytes of simulated files, small and sparse, against a bytearray."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from broker.runtime.disk import SPARSE_BYTES, FileBytes, resized, written

_SIZES = st.sampled_from((0, 1, 511, SPARSE_BYTES - 1, SPARSE_BYTES, SPARSE_BYTES + 1, 2 * SPARSE_BYTES))
_CHANGES = st.lists(st.one_of(_SIZES, st.tuples(_SIZES, st.binary(min_size=1, max_size=600))), max_size=6)


@given(_CHANGES)
def test_bytes_of_any_size_are_those_of_a_bytearray(changes: list[int | tuple[int, bytes]]) -> None:
    """Whatever is written, cut and read, sparse or not."""
    content: FileBytes = bytearray()
    model = bytearray()
    views: list[tuple[memoryview, bytes]] = []
    for change in changes:
        if isinstance(change, int):
            content = resized(content, change)
            model = model[:change] + bytes(max(change - len(model), 0))
        else:
            offset, data = change
            if offset + len(data) > len(content):
                views.append((memoryview(content), bytes(content)))
            content = written(content, offset, data)
            model.extend(bytes(max(offset + len(data) - len(model), 0)))
            model[offset : offset + len(data)] = data
        assert bytes(content) == model
    # What was grown is another object: a view of before stays.
    assert all(bytes(view) == before for view, before in views)
