"""Accelerators of pull against the Python that they stand for: the same results, byte for byte, whatever is read."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from random import Random
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from broker.errors import DamagedRecord, RecordGone
from broker.features import ALL
from broker.format.properties import SYSTEM_PROPERTIES, encode_properties, find_property
from broker.format.record import Located, locate
from broker.log.put import Put
from broker.options import StoreOptions
from broker.runtime.metrics import Metrics
from broker.store import Store
from proxy.wire.binary import STRUCT
from proxy.wire.call import BINARY, COMPACT, Call
from proxy.wire.generic.tables import StructType, Type, method
from proxy.wire.limits import OFFSETS_MAX, RESULTS_MAX
from proxy.wire.pull_reply import encode_pull_reply
from proxy.wire.scanning.scan import scan_pull, scan_submit
from proxy.wire.values import ConsumeResult, PullRequest
from pyddmq.testing import ManualClock, SimDisk
from tests.accelerator_ways import both, need_compiled, running
from tests.wire_values import UNKNOWN, UNKNOWN_TYPES, block, broker_end, call, newer, record, table, values, values_of
from upstream.embedded import source
from upstream.embedded.source import PRESSURE_NAME

REQUEST = table("consumer", "PullRequest")
RESULT = {
    "context": {"groupId": "g", "topic": "permits", "qid": "c_b_0"},
    "successOffsets": [7, 8, 300, 5_000_000],
    "failOffsets": [],
    "deliveries": {7: 1 << 61, 300: 9},
}
USUAL: dict[str, Any] = {
    "groupId": "g",
    "topic": "permits",
    "maxBatchSize": 32,
    "maxLingerTime": 30_000,
    "result": {**RESULT, "nextResult": {**RESULT, "failOffsets": [-1, 9], "reasons": {9: "é"}, "nextResult": RESULT}},
    "version": "java-1",
}


@pytest.fixture(autouse=True)
def _compiled() -> None:
    need_compiled()


# Scanning.


def scanned(message: Call) -> Any:
    """Scan a pull both ways: values, and the classes that hold them."""

    def work() -> Any:
        found = scan_pull(message)
        assert type(found) is PullRequest
        assert {type(each) for each in found.results} <= {ConsumeResult}
        return found

    return both(work)


@given(values(REQUEST))
@example(USUAL)
@example({"groupId": "g"})
def test_scan_of_any_pull_same(request: dict[str, Any]) -> None:
    """Every combination of fields."""
    assert scanned(call(COMPACT, "pull", {"request": request})).group == request["groupId"]


def test_usual_pull_is_scanned_by_the_accelerator() -> None:
    """What a client of ours sends does not go the general way."""
    from proxy.wire.scanning import scan_pull as pulls

    message = call(COMPACT, "pull", {"request": USUAL})
    with running("compiled"):
        assert pulls.usual_pull(message.frame, message.pos) == scan_pull(message)


def submitted(message: Call) -> Any:
    """Scan a submit both ways."""
    return both(lambda: scan_submit(message))


@given(values(table("consumer", "ConsumeResult")))
@example(RESULT)
@example({**RESULT, "nextResult": {**RESULT, "nextResult": RESULT}})
def test_scan_of_any_submit_same(result: dict[str, Any]) -> None:
    """Every combination of fields, and what a client of ours sends by the accelerator."""
    from proxy.wire.scanning import scan_pull as pulls

    message = call(COMPACT, "submit", {"result": result})
    found = submitted(message)
    with running("compiled"):
        assert pulls.usual_submit(message.frame, message.pos) in (None, found)


def test_scan_of_submits_with_every_byte_changed_and_every_cut_same() -> None:
    """Each byte in turn set to some values, and the frame cut at each byte."""
    message = call(COMPACT, "submit", {"result": {**RESULT, "nextResult": RESULT}})
    for place in range(message.pos, len(message.frame)):
        submitted(message._replace(frame=message.frame[:place]))
        for value in (0, 1, 8, 12, 0x19, 0x1C, 0x7F, 0x80, 0xFF):
            changed = bytearray(message.frame)
            changed[place] = value
            submitted(message._replace(frame=bytes(changed)))


@given(st.data())
def test_scan_of_changed_bytes_same(data: st.DataObject) -> None:
    """Any few bytes of a frame changed, taken out or put in."""
    message = call(COMPACT, "pull", {"request": USUAL})
    frame = bytearray(message.frame)
    for place in data.draw(st.lists(st.integers(message.pos, len(frame) - 8), min_size=1, max_size=4)):
        kind = data.draw(st.integers(0, 2))
        byte = data.draw(st.integers(0, 255) | st.sampled_from([0, 0x7F, 0x80, 0xFF]))
        frame[place : place + (kind != 1)] = b"" if kind == 2 else bytes([byte])
    scanned(message._replace(frame=bytes(frame)))


def test_scan_of_every_byte_changed_and_every_cut_same() -> None:
    """Each byte in turn set to every value, and the frame cut at each byte."""
    message = call(COMPACT, "pull", {"request": {**USUAL, "result": {**RESULT, "nextResult": RESULT}}})
    for place in range(message.pos, len(message.frame)):
        scanned(message._replace(frame=message.frame[:place]))
        for value in range(256):
            changed = bytearray(message.frame)
            changed[place] = value
            scanned(message._replace(frame=bytes(changed)))


@given(st.sampled_from(UNKNOWN_TYPES), st.sampled_from([5, 12, 55, 104, 20_000, 1, 3, 4, 10, 50]), st.data())
def test_scan_of_pulls_of_a_newer_peer_same(extra: Type, field_id: int, data: st.DataObject) -> None:
    """Unknown fields of every type at every depth, and known ones of another type than their own."""
    own = method("pull").arguments
    kind = StructType("arguments", dict(own.fields), own.names)
    changed = newer(REQUEST, extra, field_id)
    kind.fields[1] = replace(own.fields[1], type=Type(STRUCT, struct=changed))
    known = {field.name for field in changed.fields.values()}
    unknown = {UNKNOWN: data.draw(values_of(extra))}
    request = {name: value for name, value in USUAL.items() if name in known and name != "result"} | unknown
    scanned(call(COMPACT, "pull", {"request": request}, kind))


@pytest.mark.parametrize(
    "size", [b"\xff\xff\xff\xff\x0f", b"\xff" * 9 + b"\x01", b"\xff" * 10 + b"\x01", b"\xf6\xff\x7f"]
)
def test_scan_of_huge_lengths_same(size: bytes) -> None:
    """Lengths, counts and numbers far beyond the frame, in every place."""
    message = call(COMPACT, "pull", {"request": USUAL})
    for place in range(message.pos, len(message.frame)):
        for taken in (1, len(size)):
            scanned(message._replace(frame=message.frame[:place] + size + message.frame[place + taken :]))


def test_scan_at_the_bounds_of_chain_and_offsets_same() -> None:
    """As many results and offsets as a call may have, and one more."""
    for count in (RESULTS_MAX, RESULTS_MAX + 1):
        frame = b"\x1c\x18\x01g\x0c\x64" + b"\xac" * (count - 1) + bytes(count) + b"\0\0"
        scanned(Call(COMPACT, "pull", 1, 0, frame))
    for count in (OFFSETS_MAX - 1, OFFSETS_MAX):
        offsets = b"\xf6" + bytes((count & 127 | 128, count >> 7 & 127 | 128, count >> 14)) + bytes(count)
        frame = b"\x1c\x18\x01g\x0c\x64\x39" + offsets + b"\x19\x16\x02\0\0\0"
        scanned(Call(COMPACT, "pull", 1, 0, frame))


# Replying.


def message_keys_of(located: list[Located]) -> Any:
    """Ask for the keys, as a source does."""
    return vars(source)["message_keys"](located, PRESSURE_NAME)


NAMES = (b"KEYS", b"TAGS", b"a", b"origin", b"traceId", b"_x", b"DELAY", b"X", b"1ST_POP_TIME", b"x" * 140, b"x_KEYS")
HIDDEN = sorted(SYSTEM_PROPERTIES)
pairs = st.lists(
    st.tuples(
        st.sampled_from(NAMES) | st.sampled_from(HIDDEN) | st.binary(max_size=3),
        st.sampled_from([b"v", b"", b"k" * 127, b"k" * 128, b"k" * 20_000, "ü".encode(), b"\x01"])
        | st.binary(max_size=3),
    ),
    max_size=5,
)
ends = st.sampled_from(
    [b"", broker_end(False), broker_end(True), broker_end(False)[:-20], broker_end(False) + b"x\x01y\x02"]
)


@st.composite
def blocks(draw: st.DrawFn) -> bytes:
    """Draw property blocks, mostly of our own layout, some with bytes changed."""
    made = bytearray(block(draw(pairs)) + draw(ends))
    for _ in range(draw(st.sampled_from([0, 0, 0, 1, 2]))):
        if made:
            made[draw(st.integers(0, len(made) - 1))] = draw(st.sampled_from(b"kv\x00\x01\x02\x7f\x80_U"))
    return bytes(made[:32_000])


def replied(located: list[tuple[int, Located]], seqid: int = 1) -> None:
    """Encode a reply both ways, in both protocols, of a first delivery and of another."""
    for protocol, delivery in product((COMPACT, BINARY), (0, 5 << 58)):
        message = Call(protocol, "pull", seqid, 0, b"")
        both(lambda: encode_pull_reply(message, "g", "t", "q", located, delivery))  # noqa: B023


bodies = st.sampled_from([b"", b"b", bytes(127), bytes(128), b"\xff" * 1024, bytes(20_000)])
offsets = st.integers(0, 20_000) | st.integers(0, (1 << 51) - 1)


@given(st.lists(st.tuples(offsets, st.tuples(bodies, blocks())), max_size=18), st.integers(-(1 << 31), (1 << 31) - 1))
@example([(n, (b"b", block([(b"KEYS", b"k"), (b"a", b"v")]) + broker_end(True))) for n in range(20)], 1)
@example([(1, (b"b", block([(b"n%d" % n, b"v") for n in range(70)]) + broker_end(False)))], 1)
def test_reply_of_any_records_same(messages: list[tuple[int, tuple[bytes, bytes]]], seqid: int) -> None:
    """Key, body, tag, offset and properties, whatever the block holds."""
    located = [(offset, locate(record(body, found))) for offset, (body, found) in messages]
    replied(located, seqid)


ODD = [(name, b"v") for name in (*HIDDEN, *NAMES, b"", b"a\x01b", b"Upper", b"__PYDDMQ_X")]
ODD += [(name, value) for name in (b"KEYS", b"TAGS", b"n") for value in (b"", b"\x01", "ü".encode(), b"k" * 2_100)]


@pytest.mark.parametrize("ends", [broker_end(False), broker_end(True), broker_end(True) + b"x\x01y\x02", b""])
@pytest.mark.parametrize("pair", ODD)
def test_reply_of_a_block_with_one_odd_property_same(pair: tuple[bytes, bytes], ends: bytes) -> None:
    """Names of the broker's own, empty ones, texts that are no ASCII: first, between and last among usual ones."""
    usual = [(b"KEYS", b"k"), (b"TAGS", b"t"), (b"n", b"v")]
    for place in range(len(usual) + 1):
        for others in (usual, usual[2:]):
            found = locate(record(b"body", block([*others[:place], pair, *others[place:]]) + ends))
            replied([(1, found)])


@pytest.mark.parametrize("binary", [False, True])
def test_usual_reply_is_made_by_the_accelerator(binary: bool) -> None:
    """Records of our own do not go the general way."""
    from proxy.wire import pull_reply

    found = locate(record(b"body", block([(b"KEYS", b"k"), (b"TAGS", b"t"), (b"n", b"v")]) + broker_end(True)))
    with running("compiled"):
        assert pull_reply.usual_reply(b"head", 1, b"context", [(1, found)], binary, b"\x00", []) is not None
        assert pull_reply.usual_reply(b"head", 1, b"context", [], binary, b"\x00", []) is not None


@given(blocks(), st.integers(-1, 40_000), st.integers(-1, 40_000))
def test_reply_of_places_outside_of_their_view_is_refused(found: bytes, body_at: int, block_at: int) -> None:
    """Nothing beyond a view is read, whatever positions say."""
    from proxy.wire import pull_reply

    view, _, body_end, _, end = locate(record(b"body", found))
    for place in ((view, body_at, body_end, block_at, end), (view, body_end, body_at, end, block_at)):
        inside = 0 <= place[1] <= place[2] <= place[3] <= place[4] <= len(view)
        with running("compiled"):
            for binary in (False, True):
                assert (
                    inside or pull_reply.usual_reply(b"head", 1, b"context", [(1, place)], binary, b"\x00", []) is None
                )
            assert inside or message_keys_of([place]) is None or 0 <= place[3] <= place[4] <= len(view)


# Finding records and keys.


@given(st.lists(blocks(), max_size=6))
@example([block([(b"KEYS", b"k")]), block([(b"isPressureTraffic", b"true")])])
@example([block([(b"TAGS", b"t"), (b"KEYS", b"k")]), block([(b"KEYS", b"")]), b""])
@example([block([(b"KEYS", b"first"), (b"KEYS", b"last")])])
def test_keys_of_any_blocks_same(found: list[bytes]) -> None:
    """The message key as who looks at each block finds it, or that more must be looked at."""
    located = [locate(record(b"body", each)) for each in found]
    with running("compiled"):
        keys = message_keys_of(located)
    if not any(b"\x02" + PRESSURE_NAME in b"\x02" + each for each in found):
        assert keys == [find_property(each, b"KEYS") for each in found]
    else:
        assert keys is None


def stored(disk: SimDisk) -> tuple[Store, list[tuple[int, int]]]:
    """Return a store with records in three segments, and where they stand."""
    options = StoreOptions(segment_bytes=1 << 14, message_bytes_max=1 << 13)
    store = Store.open(
        "/s", options=options, features=ALL, disk=disk, clock=ManualClock(), random=Random(1), metrics=Metrics()
    )
    topic = store.create_topic("t", 1)
    for number in range(40):
        put = Put(topic, 0, b"%d" % number * 300, encode_properties([("KEYS", str(number)), ("n", "v")]))
        store.append([put], born_ms=1, born_host=bytes(8))
        store.flush()
    return store, [(physical, size) for physical, size, _ in topic.queues[0].read(0, 40)]


def parts(located: Located) -> tuple[bytes, bytes]:
    """Body and properties; one way finds them in the segment, the other in the record."""
    view, body_at, body_end, block_at, end = located
    return view[body_at:body_end].tobytes(), view[block_at:end].tobytes()


@given(
    st.lists(st.tuples(st.integers(0, 39), st.integers(-1, 1500), st.integers(0, 7)), max_size=3),
    st.booleans(),
    st.data(),
)
def test_records_found_same_after_any_damage(
    damage: list[tuple[int, int, int]], cold: bool, data: st.DataObject
) -> None:
    """Bits flipped anywhere in records, warm and cold ones; places that are wrong; over the ends of segments."""
    disk = SimDisk()
    store, written = stored(disk)
    places = list(written)
    for number, at, bit in damage:
        physical, size = written[number]
        start = (physical + min(max(at, 0), size - 1)) % (1 << 14)
        disk.flip_bit(f"/s/commitlog/{physical // (1 << 14) * (1 << 14):020d}", start, bit)
        if at < 0:
            places[number] = (physical + data.draw(st.integers(-200, 20_000)), size + data.draw(st.integers(-100, 200)))
    store.index.log.cold_end = store.end if cold else 0

    def found() -> list[Any]:
        all_found: list[Any] = []
        for place in places:
            try:
                all_found += map(parts, store.locate([place]))
            except (DamagedRecord, RecordGone) as error:
                all_found.append(str(error))
        return all_found

    assert len(both(found)) == 40
    both(lambda: [parts(each) for each in store.locate(places)])
