"""Two bits per half against a plain model, over growth, decisions, trims and checkpoints."""

from __future__ import annotations

import json
import zlib
from base64 import b64encode
from time import process_time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.queues.topics import Topic
from broker.transaction import states as module
from broker.transaction.names import OP_TOPIC, Fate
from broker.transaction.ops import BODY_CHARS_MAX, HalfReference, OpPlaces, members_of, op_puts
from broker.transaction.states import HalfState, HalfStates
from tests.insides import most_kept

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("grow"), st.integers(1, 9)),
        st.tuples(st.just("settle"), st.integers(0, 60)),
        st.tuples(st.just("begin"), st.integers(0, 60)),
        st.tuples(st.just("save"), st.integers(0, 8)),
    ),
    max_size=60,
)


@given(st.integers(0, 9), STEPS, st.sampled_from(list(HalfState)[1:]))
def test_states_are_those_of_a_plain_model(start: int, steps: list[tuple[str, int]], known: HalfState) -> None:
    """Undecided ones, their count and the lowest are right always; decided ones are told or forgotten, never wrong."""
    states = HalfStates(start)
    model: dict[int, HalfState] = {}
    end = start
    for what, number in steps:
        if what == "grow":
            model.update(dict.fromkeys(range(end, end + number), HalfState.UNDECIDED))
            end += number
            states.grow(end)
        elif what == "settle":
            undecided = model.get(number) is HalfState.UNDECIDED
            assert states.resolve(number, known) is undecided
            if undecided:
                model[number] = known
        elif what == "begin":
            states.begin_at(number)
            for offset, found in model.items():
                if offset < number and found is HalfState.UNDECIDED:
                    model[offset] = HalfState.ELSEWHERE
        else:
            end = max(start, end - number)
            model = {offset: found for offset, found in model.items() if offset < end}
            states = HalfStates.restored(json.loads(json.dumps(states.saved())), end)
        undecided_ones = [offset for offset, found in model.items() if found is HalfState.UNDECIDED]
        assert list(states.waiting(0)) == undecided_ones
        assert states.undecided == len(undecided_ones)
        assert states.position == (undecided_ones[0] if undecided_ones else states.end)
        for offset in range(80):
            assert states.get(offset) in (model.get(offset), None)
            assert states.is_undecided(offset) is (model.get(offset) is HalfState.UNDECIDED)


@pytest.mark.parametrize("first", [0, 1, 3])
def test_half_that_nobody_decides_for_days_costs_nothing_when_it_is_decided(first: int) -> None:
    """Nor when it is looked for, or after a restart: tens of millions of others were decided meanwhile."""
    count = 40_000_003
    bits = bytearray(b"\x55" * (count // 4 + 1))
    bits[0] &= 0xFC << first * 2
    bits[-1] &= 0x3F
    bits[-1] &= 0xCF
    saved = {"position": first, "end": count, "bits": b64encode(zlib.compress(bits, 1)).decode()}
    began = process_time()
    states = HalfStates.restored(saved, count)
    last = count - 1
    assert (states.position, states.end, states.undecided) == (first, count, 2)
    assert list(states.waiting(0)) == [first, last]
    assert states.resolve(first, HalfState.ROLLED_BACK)
    assert (states.position, states.undecided) == (last, 1)
    assert states.resolve(last, HalfState.ROLLED_BACK)
    assert (states.position, states.undecided) == (count, 0)
    # One by one it is a minute.
    assert process_time() - began < 10


def test_bits_far_below_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory is that of the undecided ones and a fixed number of decided ones."""
    monkeypatch.setattr(module, "KEPT", 64)
    monkeypatch.setattr(module, "_TRIM", 32)
    states = HalfStates()
    states.grow(1000)
    for offset in range(1000):
        states.resolve(offset, HalfState.COMMITTED)
    assert states.get(1000 - 64) is HalfState.COMMITTED
    assert states.get(100) is None
    assert most_kept(states) <= (64 + 32) // 4 + 1


@given(st.lists(st.tuples(st.integers(0, 10**17), st.sampled_from(list(Fate))), min_size=1, max_size=600))
def test_op_records_say_what_they_were_told(found: list[tuple[int, Fate]]) -> None:
    """Split where a body would be too long; read back as they were."""
    topic = Topic(OP_TOPIC, system=True)
    members = [HalfReference(offset, fate) for offset, fate in found]
    read: list[HalfReference] = []
    for put, part in op_puts(topic, members):
        assert len(put.body) <= BODY_CHARS_MAX
        assert members_of(bytes(put.body), put.properties) == list(part)
        read += part
    assert read == members


@given(st.lists(st.integers(-1, 50), max_size=80), st.lists(st.integers(0, 60), max_size=5))
def test_op_offset_is_never_above_an_op_that_matters(highest: list[int], positions: list[int]) -> None:
    """Whatever is asked in rising order: at or below the first op record with a member at the position or above."""
    places = OpPlaces(7)
    for number, each in enumerate(highest):
        places.note(7 + number, each)
    for position in sorted(positions):
        first = next((7 + number for number, each in enumerate(highest) if each >= position), 7 + len(highest))
        assert places.first(position) <= first


def test_op_places_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neighbours are taken together, and the answer stays on the safe side."""
    monkeypatch.setattr("broker.transaction.ops._BLOCKS_MAX", 16)
    places = OpPlaces()
    for number in range(10_000):
        places.note(number, number)
    assert most_kept(places) <= 17
    assert 5000 - 10_000 // 8 <= places.first(5000) <= 5000
    assert places.next == 10_000
