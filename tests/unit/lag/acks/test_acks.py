"""The ack log: batches come back exactly, files are bounded, and a bad disk costs records only."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.testing.sim_disk import PowerCut, SimDisk
from lag.acks.acks import AckBatch, Outcome, decode, encode, is_sampled, sample
from lag.acks.log import AckLog, AckLogLimits, read_acks
from lag.blocks import FileHead, FileKind, Gap, GapKind

FOLDER = "/data/pyddmq/lag-acks/g"
HEAD = FileHead(kind=FileKind.ACKS, cluster="c", node="n", epoch=3, sequence=0, first_ms=0, last_ms=0, group="g")
LIMITS = AckLogLimits(free_bytes_min=0)
NOW_MS = 1_770_000_000_000

_moments = st.integers(NOW_MS - 10_000, NOW_MS + 10_000)
_messages = st.tuples(
    st.integers(0, 1 << 50), _moments, st.none() | _moments, _moments, st.integers(0, 99), st.sampled_from(Outcome)
)
batches = st.builds(
    lambda topic, queue, rows: AckBatch(topic, queue, *(list(column) for column in zip(*rows, strict=True))),
    st.text(max_size=9),
    st.integers(0, 99),
    st.lists(_messages, min_size=1, max_size=9),
)


def batch(first: int, count: int = 10) -> AckBatch:
    """Return messages in order, each of which was handed out at once."""
    span = range(first, first + count)
    stored = [NOW_MS + 10 * offset for offset in span]
    handed = [each + 2 for each in stored]
    ended = [each + 9 for each in stored]
    return AckBatch("t", 1, list(span), stored, list(handed), ended, [1] * count, [Outcome.SUCCEEDED] * count)


def log(disk: SimDisk, limits: AckLogLimits = LIMITS) -> AckLog:
    """Return the log of a start."""
    return AckLog(disk, FOLDER, HEAD, limits)


def offsets(disk: SimDisk) -> list[int]:
    """Return the offsets that are read."""
    return [offset for each in read_acks(disk, FOLDER) if not isinstance(each, Gap) for offset in each[1].offsets]


def gaps(disk: SimDisk) -> list[GapKind]:
    """Return what is missing."""
    return [each.kind for each in read_acks(disk, FOLDER) if isinstance(each, Gap)]


@given(batches)
def test_any_batch_comes_back(made: AckBatch) -> None:
    """Column by column, null where it was null."""
    assert decode(encode(made)) == made


@given(st.binary(max_size=60))
def test_bytes_that_nobody_wrote_raise_nothing_but_value_error(data: bytes) -> None:
    """A right sum over nonsense is a damage that the reader names."""
    try:
        decode(data)
    except ValueError:
        return
    assert data[0] == 1


def test_message_of_a_steady_queue_takes_few_bytes() -> None:
    """Six, of which none is for its name."""
    assert len(encode(batch(10**9, 1000))) <= 6 * 1000 + 30


@pytest.mark.parametrize("one_in", [1, 2, 10, 100])
def test_sample_is_of_the_size_asked_for_and_always_the_same(one_in: int) -> None:
    """Whatever the batches; evenly, so that no rhythm of the producers is taken for the whole."""
    taken = [offset for offset in range(100_000) if is_sampled(offset, one_in)]
    assert abs(len(taken) - 100_000 / one_in) <= 0.1 * 100_000 / one_in
    for rest in range(4):
        assert one_in == 1 or len([each for each in taken if each % 4 == rest]) > len(taken) / 6
    assert sample(batch(0, 1000), one_in).offsets == [each for each in taken if each < 1000]


def test_batches_are_read_with_whose_they_are() -> None:
    """In the order of their writing, over starts."""
    disk = SimDisk()
    log(disk).add(batch(0))
    AckLog(disk, FOLDER, replace(HEAD, epoch=4), LIMITS).add(batch(10))
    found = [each for each in read_acks(disk, FOLDER) if not isinstance(each, Gap)]
    assert [(head.epoch, head.group, made) for head, made in found] == [(3, "g", batch(0)), (4, "g", batch(10))]


def test_files_are_bounded_and_the_oldest_goes() -> None:
    """Never more bytes than allowed."""
    disk = SimDisk()
    made = log(disk, replace(LIMITS, file_bytes=500, bytes_max=2000))
    for number in range(200):
        made.add(batch(10 * number))
    sizes = [disk.open(f"{FOLDER}/{name}").size() for name in disk.list(FOLDER)]
    assert len(sizes) > 1
    assert sum(sizes) <= 2000 + 200
    found = offsets(disk)
    assert found == list(range(found[0], 2000))
    assert found[0] > 0


def test_kill_at_any_change_leaves_whole_batches() -> None:
    """What `add` returned from is read again; the next start goes on."""
    stop = 1
    while True:
        disk, done = SimDisk(), 0
        made = log(disk, replace(LIMITS, file_bytes=150))
        disk.stop_after(stop)
        try:
            for number in range(6):
                made.add(batch(10 * number))
                done += 10
        except PowerCut:
            disk.kill()
            assert offsets(disk) in (list(range(done)), list(range(done + 10)))
            log(disk).add(batch(1000))
            assert offsets(disk)[-10:] == list(range(1000, 1010))
            stop += 1
        else:
            assert stop > 6
            return


def test_failed_write_drops_the_batch_and_the_next_begins_a_file() -> None:
    """Counted; nothing raises."""
    disk = SimDisk()
    made = log(disk)
    made.add(batch(0))
    disk.fail("write")
    made.add(batch(10))
    assert (made.written, made.dropped) == (10, 10)
    assert made.trouble is not None
    made.add(batch(20))
    assert offsets(disk) == [*range(10), *range(20, 30)]
    assert gaps(disk) == []


def test_last_space_is_left_to_the_store() -> None:
    """Below the bound nothing is written."""
    disk = SimDisk(capacity_bytes=1000)
    made = log(disk, AckLogLimits(free_bytes_min=2000))
    made.add(batch(0))
    assert (made.dropped, disk.list(FOLDER)) == (10, [])


def test_any_flipped_byte_gives_the_whole_batches_before_it() -> None:
    """And names the damage; other files are read."""
    disk = SimDisk()
    made = log(disk)
    for number in range(3):
        made.add(batch(10 * number))
    path = f"{FOLDER}/acks.0000000001.lag"
    whole = disk.open(path).read(0, 10_000)
    for position in range(len(whole)):
        damaged = bytearray(whole)
        damaged[position] ^= 1 << position % 8
        disk.open(path).write(0, [bytes(damaged)])
        found = offsets(disk)
        assert found == list(range(len(found)))
        assert len(found) % 10 == 0
        assert len(found) < 30
        assert len(gaps(disk)) == 1
