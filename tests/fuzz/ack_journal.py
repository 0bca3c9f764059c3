"""Target `acks`: a store whose ack journal is what the input says; nothing comes out as acked that never was.

An input is flags and either the bytes of the segment, or payloads (two bytes of length each) that get right sums.
"""

from __future__ import annotations

import functools

from broker.errors import StoreError
from pyddmq.testing import SimDisk
from tests.fuzz.image import Image, disk_of, image_of, put
from tests.fuzz.store_files import be_a_sentence
from tests.unit.progress_world import ACKS, ROOT, Node, finished
from upstream.progress.journal_format import encode_block

ACKED = frozenset({0, 3, 4, 5, 20})
BLOCKS, SECOND_FILE = 1, 2


@functools.cache
def image() -> Image:
    """Return the files of a node that was killed after a few acks."""
    node = Node(SimDisk())
    node.publish(50)
    node.tracker(0)
    node.progress.flush()
    node.ack(3, 4, 5, 20)
    node.ack(0)
    assert isinstance(node.disk, SimDisk)
    node.disk.kill()
    return image_of(node.disk, ROOT)


def segment_path() -> str:
    """Path of the journal's one segment."""
    (path,) = [each for each in image() if each.startswith(ACKS) and each.endswith(".acks")]
    return path


def acks(data: bytes) -> None:
    """Open a node on this journal, ack something, and open it again."""
    flags = data[0] if data else 0
    content = data[1:]
    path = segment_path()
    number = int(path.rpartition("/")[2].partition(".")[0])
    if flags & BLOCKS:
        content = _blocks(number, content)
    size = len(image()[path])
    disk = disk_of(image())
    put(disk, f"{ACKS}/{number + 1:016d}.acks" if flags & SECOND_FILE else path, content[:size].ljust(size, b"\0"))
    try:
        node = Node(disk)
    except StoreError as error:
        be_a_sentence(error)
        return
    if not flags & BLOCKS:
        assert finished(node, end=50) <= ACKED, "something is acked that nobody acked"
    before = finished(node, end=50)
    tracker = node.tracker()
    assert 0 <= tracker.watermark <= 50, "the watermark lies outside of the queue"
    node.ack(7)
    node.close()
    again = Node(disk)
    assert finished(again, end=50) == before | {7}, "an ack was lost, or one came from nowhere"
    again.close()


def _blocks(number: int, data: bytes) -> bytes:
    content = bytearray()
    at = 0
    while at + 2 <= len(data):
        size = int.from_bytes(data[at : at + 2], "big") % 2048
        payload = data[at + 2 : at + 2 + size]
        at += 2 + size
        if payload:
            content += encode_block(number, len(content), payload) + payload
    return bytes(content)
