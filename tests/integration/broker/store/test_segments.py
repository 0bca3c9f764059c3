"""What a log file holds when it is left."""

from __future__ import annotations

import pytest

from broker.format.record import BLANK, MAGIC_BLANK, MAGIC_V1
from pyddmq.testing import SimDisk
from tests.integration.store_tools import ROOT, append, bodies, open_store


@pytest.mark.usefixtures("each_accelerator_way")
@pytest.mark.parametrize("flushed", [True, False])
@pytest.mark.parametrize(
    "appends", [[[1500]] * 7, [[3000], [2000, 500], [1500]], [[1000, 1000, 1000, 1000, 1000, 2500, 300], [3000]]]
)
def test_segment_that_is_left_ends_in_a_blank_record(appends: list[list[int]], *, flushed: bool) -> None:
    """Whether records go on one by one, several of an append in the next segment, or one append over its end."""
    disk = SimDisk()
    store = open_store(disk)
    store.create_topic("t", 1)
    for sizes in appends:
        append(store, *map(bytes, sizes))
        if flushed:
            store.flush()
    store.flush()
    assert [len(body or b"") for body in bodies(store).values()] == [size for sizes in appends for size in sizes]
    left = disk.list(f"{ROOT}/commitlog")[:-1]
    assert left
    for name in left:
        data, at, magic = disk.open(f"{ROOT}/commitlog/{name}").read(0, 4096), 0, MAGIC_V1
        while magic == MAGIC_V1:
            size, magic = BLANK.unpack_from(data, at)
            at += size
        assert (at, magic) == (4096, MAGIC_BLANK)
