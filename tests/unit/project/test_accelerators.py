"""Compiled accelerators against the Python that they stand for: the same results and refusals, byte for byte."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from array import array
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from broker.features import ALL
from broker.format.properties import PROPERTIES_BYTES_MAX
from broker.format.unique_key import UniqueKeys
from broker.index import file
from broker.index.file import IndexFile
from broker.index.rows import Fed, RowMaker, Rows
from broker.log import encoder as encoder_module
from broker.log.encoder import Encoder, Stamp
from broker.log.put import LogPosition, Put
from broker.options import StoreOptions
from broker.queues.consume_queue import ConsumeQueue
from broker.queues.topics import Topic, Topics
from broker.runtime import accelerators
from broker.runtime.accelerators import AcceleratorState
from broker.runtime.bundle import runtime_of
from broker.runtime.file_writes import at_once
from broker.runtime.metrics import Metrics
from broker.runtime.sums import crc32
from broker.store import Store
from proxy.services.message_checks import MessageChecks
from proxy.services.message_rules import Refusal
from proxy.services.topic_port import TopicPort
from proxy.wire import replies
from proxy.wire.binary import STRUCT
from proxy.wire.call import COMPACT, Call
from proxy.wire.generic.tables import StructType, Type, method
from proxy.wire.limits import PROPERTIES_MAX
from proxy.wire.scanning.scan import scan_send, scan_send_batch, scan_sends
from proxy.wire.values import SendMessage
from pyddmq.testing import ManualClock, SimDisk
from tests.accelerator_ways import MODULES, PLACES, both, need_compiled, running
from tests.unit.project.test_house_rules import MAY_IMPORT, ROOT
from tests.wire_values import PROTOCOLS, UNKNOWN, UNKNOWN_TYPES, call, newer, table, values, values_of
from upstream.waiting.limits import TokenBucket

MESSAGE = table("producer", "Message")
USUAL: dict[str, Any] = {
    "topic": "permits",
    "key": "key-0001",
    "hashId": 300,
    "tags": "created",
    "partitionId": 1,
    "body": b"\xff" * 20,
    "version": "java-1",
    "properties": {"traceId": "5f1c9a7b", "origin": "checkout"},
}
protocols = st.sampled_from(PROTOCOLS)


@pytest.fixture(autouse=True)
def _compiled() -> None:
    need_compiled()


def scanned(message: Call) -> Any:
    """Scan a sendBatchSync both ways."""

    def work() -> Any:
        found = scan_send_batch(message)
        assert all(each.body is None or each.body.obj is message.frame for each in found.messages)
        return found

    return both(work)


# Scanning.


@given(protocols, st.lists(values(MESSAGE), max_size=6))
@example(COMPACT, [USUAL, {**USUAL, "properties": {"traceId": "1", "other": "2"}}, {**USUAL, "delayMs": 5}, USUAL])
def test_scan_of_any_messages_same(protocol: int, batch: list[dict[str, Any]]) -> None:
    """Every combination of fields, mixed in a batch."""
    found = scanned(call(protocol, "sendBatchSync", {"messages": batch}))
    assert len(found.messages) == len(batch)


@given(protocols, st.data())
def test_scan_of_changed_bytes_same(protocol: int, data: st.DataObject) -> None:
    """Any few bytes of a frame changed, taken out or put in: lengths, headers, counts, texts that are no UTF-8."""
    message = call(protocol, "sendBatchSync", {"messages": [USUAL, {**USUAL, "deliverAtMs": 7}, USUAL]})
    frame = bytearray(message.frame)
    for place in data.draw(st.lists(st.integers(message.pos, len(frame) - 8), min_size=1, max_size=4)):
        kind = data.draw(st.integers(0, 2))
        byte = data.draw(st.integers(0, 255) | st.sampled_from([0, 0x7F, 0x80, 0xFF]))
        frame[place : place + (kind != 1)] = b"" if kind == 2 else bytes([byte])
    scanned(message._replace(frame=bytes(frame)))


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_scan_of_every_bit_changed_and_every_cut_same(protocol: int) -> None:
    """One bit at a time over two messages, and the frame cut at each byte."""
    message = call(protocol, "sendBatchSync", {"messages": [USUAL, {**USUAL, "key": "schlüssel", "delayLevel": 3}]})
    for place in range(message.pos, len(message.frame)):
        scanned(message._replace(frame=message.frame[:place]))
        for bit in range(8):
            changed = bytearray(message.frame)
            changed[place] ^= 1 << bit
            scanned(message._replace(frame=bytes(changed)))


@given(protocols, st.sampled_from(UNKNOWN_TYPES), st.sampled_from([10, 104, 20_000, 1, 4, 6, 7, 9, 101]), st.data())
def test_scan_of_messages_of_a_newer_peer_same(protocol: int, extra: Type, field_id: int, data: st.DataObject) -> None:
    """Unknown fields of every type, and known ones of another type than their own."""
    own = method("sendBatchSync").arguments
    kind = StructType("arguments", dict(own.fields), own.names)
    changed = newer(MESSAGE, extra, field_id)
    kind.fields[1] = replace(own.fields[1], type=replace(own.fields[1].type, parts=(Type(STRUCT, struct=changed),)))
    known = {field.name for field in changed.fields.values()}
    message = {name: value for name, value in USUAL.items() if name in known} | {UNKNOWN: data.draw(values_of(extra))}
    scanned(call(protocol, "sendBatchSync", {"messages": [message, message]}, kind))


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize(
    "size", [b"\xff\xff\xff\xff\x0f", b"\xff\xff\xff\xff\x7f", b"\xff" * 9 + b"\x01", b"\x7f" + b"\xff" * 3]
)
def test_scan_of_huge_lengths_same(protocol: int, size: bytes) -> None:
    """Lengths and counts far beyond the frame, in every place."""
    message = call(protocol, "sendBatchSync", {"messages": [USUAL, USUAL]})
    for place in range(message.pos, len(message.frame)):
        for taken in (1, len(size)):
            frame = message.frame[:place] + size + message.frame[place + taken :]
            scanned(message._replace(frame=frame))


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("count", [0, 1, 127, 128, 130, PROPERTIES_MAX, PROPERTIES_MAX + 1])
def test_scan_of_many_properties_same(protocol: int, count: int) -> None:
    """Counts of one byte and of two, and those that are refused."""
    pairs = {f"name{number}": "" for number in range(count)}
    scanned(call(protocol, "sendBatchSync", {"messages": [{**USUAL, "properties": pairs}]}))


def single(message: Call, *others: Call) -> Any:
    """Scan a sendSync both ways, as the first of a list."""

    def work() -> Any:
        found, *_ = scan_sends([message, *others])
        sent, timeout_ms = found or scan_send(message)
        assert sent.body is None or sent.body.obj is message.frame
        return sent, timeout_ms

    return both(work)


@given(protocols, values(MESSAGE), st.none() | st.integers(-(2**63), 2**63 - 1))
def test_scan_of_any_single_send_same(protocol: int, sent: dict[str, Any], timeout_ms: int | None) -> None:
    """Every combination of fields, with and without a timeout, before and behind another send."""
    arguments = {"message": sent} if timeout_ms is None else {"message": sent, "timeout": timeout_ms}
    message, other = call(protocol, "sendSync", arguments), call(protocol, "sendAsync", {"message": USUAL})
    assert single(message)[1] == timeout_ms
    assert single(message, other) == single(message)
    single(other, message)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_scan_of_every_bit_changed_and_every_cut_of_a_single_send_same(protocol: int) -> None:
    """One bit at a time, and the frame cut at each byte."""
    message = call(protocol, "sendSync", {"message": {**USUAL, "key": "schlüssel"}, "timeout": 300})
    for place in range(message.pos, len(message.frame)):
        single(message._replace(frame=message.frame[:place]))
        for bit in range(8):
            changed = bytearray(message.frame)
            changed[place] ^= 1 << bit
            single(message._replace(frame=bytes(changed)))


@given(
    protocols,
    st.integers(-(2**31), 2**31 - 1),
    st.lists(st.tuples(st.integers(0, 2**31 - 1), st.integers(0, 2**62), st.binary(max_size=300)), min_size=1),
    st.text(max_size=200),
)
def test_replies_of_single_sends_same(
    protocol: int, seqid: int, places: list[tuple[int, int, bytes]], prefix: str
) -> None:
    """Whatever queue, offset, id and sequence number there is."""
    positions = [LogPosition(queue_id, offset, 7, key.hex().encode()) for queue_id, offset, key in places]
    calls = [Call(protocol, "sendAsync", seqid, 0, b"")] * len(positions)
    both(lambda: replies.encode_stored_replies(calls, positions, prefix.encode()))


def test_scan_of_a_count_that_goes_on_into_the_types_same() -> None:
    """The second byte of a count looks like the types of a map of texts."""
    message = call(COMPACT, "sendBatchSync", {"messages": [{**USUAL, "properties": {"n" * 8: "v"}}]})
    at = message.frame.index(b"\x01\x88\x08nnnnnnnn")
    for count in (b"\x82\x88", b"\x80\x88\x01", b"\x82\x08\x88", b"\x80\x00\x88", b"\x81\x00\x88"):
        frame = message.frame[:at] + count + message.frame[at + 2 :] + b"\0" * 300
        scanned(message._replace(frame=frame))


# Checking.

texts = st.sampled_from(
    [None, b"", b"k", b"key-0001", "schlüssel".encode(), b"a\x01b", b"\x02", b"n" * 255, b"n" * 256]
)
names = st.sampled_from([b"traceId", b"origin", b"", b" ", b"KEYS", b"TIMER_X", b"a\x01", b"%b", "ü".encode()])
property_values = st.sampled_from(
    [b"v", b"", b" \t\n\r\x0b\x0c", b"\r", b"\t", b" v", b"\x1c", b"a\x02", b"v" * 40_000, b"\xc2\xa0"]
)
properties = st.lists(st.tuples(names, property_values), max_size=3).map(
    lambda pairs: (tuple(name for name, _ in pairs), tuple(value for _, value in pairs)) if pairs else None
)
numbers = st.sampled_from([0, 1, -1, 7, 1 << 40, (1 << 63) - 1, -(1 << 63)])
sent = st.builds(
    SendMessage,
    topic=st.sampled_from([b"permits", b"permits", b"orders", b"limited", b"missing", b""]),
    key=texts,
    value=st.sampled_from([None, None, b"", b"old"]),
    hash_id=st.just(0) | numbers,
    tags=texts,
    partition_id=st.sampled_from([-1, -1, -2, 0, 5, (1 << 31) - 1, -(1 << 31)]),
    body=st.sampled_from([None, b"", b"body", bytes(100), bytes(101)]).map(lambda b: b if b is None else memoryview(b)),
    version=st.none(),
    properties=properties,
    delay_level=st.sampled_from([None, None, 0, 3, -1]),
    deliver_at_ms=st.none() | numbers,
    delay_ms=st.none(),
    unique_key=st.none() | st.just(b"FE" + b"0" * 30),
)
usual_sent = SendMessage(
    *(b"permits", b"k", None, 0, b"t", -1, memoryview(b"body"), None, ((b"a", b"b"), (b"c", b"d")), None, None, None)
)


nearly_usual = st.one_of(
    st.just(usual_sent),
    texts.map(lambda text: usual_sent._replace(key=text)),
    texts.map(lambda text: usual_sent._replace(tags=text, key=None)),
    properties.map(lambda pairs: usual_sent._replace(properties=pairs)),
    st.sampled_from([b"orders", b"limited"]).map(lambda name: usual_sent._replace(topic=name)),
    numbers.map(lambda number: usual_sent._replace(hash_id=number)),
)


@given(st.lists(nearly_usual | sent, max_size=6))
@example([usual_sent._replace(topic=b"limited")] * 3)
@example([usual_sent, usual_sent._replace(key=None), usual_sent._replace(key=None, partition_id=-2), usual_sent] * 2)
@example([usual_sent._replace(unique_key=b"FE" + b"1" * 30)] * 3)
@example([usual_sent, usual_sent._replace(unique_key=b"FE" + b"1" * 30)])
def test_checks_of_any_messages_same(messages: list[SendMessage]) -> None:
    """Puts, ports, delays and refusals; the queues of the round and tokens that were taken, too."""
    checked(messages)


def test_checks_of_values_of_any_byte_same() -> None:
    """White space alone is refused, and the separators; the names are known from the message before."""
    known = usual_sent._replace(properties=((b"a",), (b"v",)))
    for byte in range(256):
        checked([known, known._replace(properties=((b"a",), (bytes([byte]),)))])


def checked(messages: list[SendMessage]) -> None:
    """Check messages both ways, a few times, those with numbers among them."""

    def work() -> Any:
        clock, metrics = ManualClock(), Metrics()
        store = Store.open(
            "/store",
            options=StoreOptions(),
            features=ALL,
            disk=SimDisk(),
            clock=clock,
            random=Random(1),
            metrics=metrics,
        )
        known = {}
        for name, queues in (("permits", 3), ("orders", 8), ("limited", 2)):
            limit = TokenBucket(2, clock) if name == "limited" else None
            known[name.encode()] = TopicPort(store.create_topic(name, queues), limit, metrics)
        checks = MessageChecks(
            known,
            store=store,
            runtime=runtime_of(SimDisk(), clock, random=Random(3)),
            body_bytes_max=100,
            auto_create=lambda _: None,
        )
        reported: list[Any] = []
        for keyed in (False, True, False):
            puts: list[Put] = []
            ports: list[TopicPort] = []
            try:
                reported.append(checks.check(messages, puts, ports, keyed=keyed))
            except Refusal as refusal:
                reported.append((refusal.code, refusal.text))
            reported.append([(put.topic.name, *put[1:]) for put in puts])
            reported.append([port.topic.name for port in ports])
            reported.append([(port.round, port.limit and port.limit.available()) for port in known.values()])
        store.abandon()
        return reported

    both(work)


# Encoding.

OPTIONS = StoreOptions(segment_bytes=1 << 16, message_bytes_max=6000)
block = b"KEYS\x01k\x02"
i64 = st.sampled_from([0, 0, 0, 9, -1, 1 << 40, (1 << 63) - 1, -(1 << 63), 1 << 63])
i32 = st.sampled_from([0, 0, 0, 8, -1, (1 << 31) - 1, -(1 << 31), 1 << 31])
put_fields = st.tuples(
    st.sampled_from([0, 1, 2, 2, 0, -1, 3]),
    st.sampled_from([b"", b"body", bytes(range(256)) * 4, bytes(3800), bytes(6001), bytes(6000)]),
    st.sampled_from([b"", block, block[:-1], block * 500, b"a\x01" + b"v" * PROPERTIES_BYTES_MAX]),
    st.sampled_from([b"", b"paid", "bezählt".encode(), b"t" * 40, b"\xff"]) | i64,
    st.sampled_from([b"", b"", b"", b"KEY%05d" % 1, b"K" * 32]),
    i64,
    i32,
    i32,
    i32,
)
usual_put = (1, b"body", block, b"paid", b"", 0, 0, 0, 0)
waited_put = (2, bytes(range(256)), block + b"UNIQ_KEY\x01K\x02", b"paid", b"K", 1 << 40, 3, 8, -1)
nearly_usual_puts = st.tuples(st.integers(0, 8), put_fields, st.sampled_from([usual_put, waited_put])).map(
    lambda drawn: (*drawn[2][: drawn[0]], drawn[1][drawn[0]], *drawn[2][drawn[0] + 1 :])
)
origins_of_puts = st.lists(
    st.tuples(i64, st.sampled_from([bytes(range(8)), bytes(range(8)), b"h" * 8, bytes(20), b"h" * 7])),
    min_size=5,
    max_size=5,
)


@given(
    st.lists(nearly_usual_puts, min_size=1, max_size=3)
    | st.lists(nearly_usual_puts | put_fields, min_size=1, max_size=5),
    st.sampled_from([8, 8, 20]),
    st.booleans(),
    st.integers(0, 2),
    st.none() | origins_of_puts,
    st.sampled_from([-1, -1, 0, 1]),
)
@example([usual_put] * 40, 8, True, 0, None, -1)
@example([waited_put] * 40, 8, False, 2, [(5, b"h" * 8), (-(1 << 63), bytes(8))] * 20, -1)
@example([waited_put] * 40, 8, False, 0, None, 20)
@example([(1, bytes(6000), block, b"", b"", 0, 0, 0, 0)] * 12, 8, True, 0, None, -1)
def test_records_of_any_puts_same(  # noqa: PLR0917 - drawn one by one
    rows: list[Any], host_bytes: int, atomic: bool, topics: int, origins: list[tuple[int, bytes]] | None, gap_after: int
) -> None:
    """Records, positions, units, what is touched, and the keys and offsets that come next; refusals, too."""

    def work() -> Any:
        made, puts = puts_of(rows, topics)
        encoder = Encoder(OPTIONS, UniqueKeys(bytes(4), Random(1)))
        stamp = Stamp(5, bytes(range(host_bytes)), 1_700_000_000_000)
        reported: list[Any] = []
        for _ in range(2):
            measured = encoder.measure(puts, stamp, atomic=atomic)
            # Behind the end of a segment others have a place of their own.
            physicals = [
                1000 + sum(measured.sizes[:place]) + 50 * (place > gap_after >= 0) for place in range(len(puts))
            ]
            touched: dict[ConsumeQueue, Topic] = {}
            buffers, positions, flags = encoder.encode(
                puts, measured, physicals, stamp, touched, origins=None if origins is None else origins[: len(puts)]
            )
            # Records in one stretch may be one buffer.
            each = len(buffers) // len(puts) if 0 <= gap_after < len(puts) - 1 else len(buffers)
            records = [b"".join(buffers[at : at + each]) for at in range(0, len(buffers), each)]
            reported += [measured, records, positions, flags, [(q.topic, q.queue_id) for q in touched]]
            reported += [(bytes(queue.tail), queue.next_offset) for topic in made for queue in topic.queues]
        return reported

    both(work)


def test_what_waited_is_encoded_by_the_accelerator() -> None:
    """Keys, earlier records, flags, moments for tags and origins of their own, mixed with fresh ones."""
    _, puts = puts_of([waited_put, usual_put, (*usual_put[:3], 60_000, *usual_put[4:]), waited_put], 2)
    stamp = Stamp(5, bytes(8), 1_700_000_000_000)
    origins = [(7, b"h" * 8)] * len(puts)
    with running("compiled"):
        encoder = Encoder(OPTIONS, UniqueKeys(bytes(4), Random(1)))
        measured = encoder.measure(puts, stamp, atomic=False)
        taken = encoder_module.measure_usual(puts, lambda *_: measured.keys, 0, None, 20, 108, 6000, 4000, 9000)
        assert taken is not None
        middle, encode = encoder._middle(stamp, 0, 0, 0), encoder_module.encode_usual
        places = [sum(measured.sizes[:place]) for place in range(len(puts))]
        made = encode(puts, *measured, places, middle, {}, crc32, 4096, origins, stamp.store_ms)
        assert made is not None
        assert [len(each) for each in made[0]] == [sum(measured.sizes)]


def puts_of(rows: list[Any], topics: int) -> tuple[list[Topic], list[Put]]:
    """Return three topics of three queues, and puts with these fields behind their topic, over so many more topics."""
    disk = SimDisk()
    disk.make_folder("/store")
    known = Topics("/store", disk=disk, clock=ManualClock(), queue_file_units=100)
    made = [known.grow(name, 3) for name in ("permits", "t" * 127, "orders")]
    return made, [
        Put(made[place % (topics + 1)], row[0], memoryview(row[1]), *row[2:]) for place, row in enumerate(rows)
    ]


# Indexing.

topics = st.sampled_from([b"permits", b"permits", b"orders", "töpic".encode(), b"t" * 127])
words = st.sampled_from([b"k", b"key-0001", b"k" * 32, b"k" * 33, b"k" * 300, "schlüssel".encode(), b"", b"\xff"])
values_of_keys = st.lists(words, max_size=3).map(b" ".join)
pairs = st.tuples(st.sampled_from([b"KEYS", b"KEYS", b"UNIQ_KEY", b"TAGS", b"XKEYS", b""]), values_of_keys)
usual_block = b"KEYS\x01key-0001\x02TAGS\x01t\x02UNIQ_KEY\x01" + b"0" * 32 + b"\x02"
blocks = st.just(usual_block) | st.lists(pairs, max_size=4).map(
    lambda all: b"".join(name + b"\x01" + value + b"\x02" for name, value in all)
)


@given(st.lists(st.tuples(topics, blocks), max_size=6), st.integers(0, 3_000))
@example([(b"permits", usual_block)] * 3, 1)
def test_index_entries_of_any_records_same(records: list[tuple[bytes, bytes]], gap_ms: int) -> None:
    """Keys behind other properties, several words, none, texts beyond ASCII; and the records' entries in a file."""
    tails = [bytes([len(topic)]) + topic + b"\x00\x00" + block for topic, block in records]
    physicals = [1000 + 77 * place for place in range(len(tails))]
    stamps = [1_700_000_000_000 + (place - 1) * gap_ms for place in range(len(tails))]

    def work() -> Any:
        made = RowMaker().of_fed(Fed(tails, physicals, stamps))
        disk = SimDisk()
        disk.make_folder("/index")
        index_file = IndexFile(disk, "/index/1", slots=5, entries=9)
        index_file.create()
        at = index_file.put(made)
        at_once(disk, index_file.writing())
        return made, at, disk.open("/index/1").read(0, 1 << 20), index_file.header

    both(work)


@pytest.mark.parametrize("seconds", [-5, 0, (1 << 31) - 2, 1 << 31, 1 << 40])
def test_index_entry_of_any_time_same(seconds: int) -> None:
    """Seconds are kept within the 31 bits that the file has for them; negative ones are none."""
    rows = Rows([5, 6, (1 << 31) - 1], [1, 2, 3], [5_000, 5_000 + seconds * 1000, 5_000])
    both(lambda: file.enter(*rows, array("i", bytes(40)), 1, 5_000, None))


# Which of the two runs.


def test_accelerators_that_were_built_run_compiled() -> None:
    """What stands beside its source is of that source, and everything that has an accelerator asked for it."""
    assert {path.relative_to(ROOT).with_suffix("").as_posix().replace("/", ".") for path in sources()} == set(MODULES)
    assert set(accelerators.states) >= set(MODULES)
    for module in MODULES:
        assert accelerators.compiled(module)[0] is AcceleratorState.COMPILED
    if os.environ.get(accelerators.PURE_VARIABLE, "0") == "0":
        assert all(getattr(place.owner, place.attribute) is not place.pure for place in PLACES)


def sources() -> list[Path]:
    """Sources of all accelerators."""
    return [path for room in MAY_IMPORT for path in (ROOT / room).rglob("*_accelerator.pyx")]


@pytest.mark.parametrize("value", ["1", "0"])
def test_environment_chooses_python(value: str) -> None:
    """PYDDMQ_PURE=1: no accelerator runs compiled."""
    modules = "proxy.services.message_checks, proxy.wire.pull_reply, proxy.wire.scanning.scan, broker.store"
    code = f"import {modules}, broker.runtime.accelerators as l; print(*set(l.states.values()))"
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
        env={**os.environ, accelerators.PURE_VARIABLE: value},
    )
    assert done.stdout.split() == (["pure"] if value == "1" else ["compiled"])


def test_accelerator_that_is_missing_or_of_other_sources_does_not_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The Python stands for it, and the state says why."""
    (tmp_path / "stale_accelerator.py").write_text("SOURCE = 'of another source'\ndef work(): return 'compiled'\n")
    (tmp_path / "stale_accelerator.pyx").write_text("def work(): return 'changed'\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(accelerators, "states", {})
    monkeypatch.delenv(accelerators.PURE_VARIABLE, raising=False)
    for module in ("stale_accelerator", "absent_accelerator"):
        assert accelerators.accelerated(module, "work", lambda: "python")() == "python"
    assert accelerators.states == {
        "stale_accelerator": AcceleratorState.STALE,
        "absent_accelerator": AcceleratorState.ABSENT,
    }
    mark = accelerators.fingerprint(tmp_path / "stale_accelerator.pyx")
    (tmp_path / "right_accelerator.pyx").write_text("def work(): return 'changed'\n")
    (tmp_path / "right_accelerator.py").write_text(f"SOURCE = '{mark}'\ndef work(): return 'compiled'\n")
    assert accelerators.accelerated("right_accelerator", "work", lambda: "python")() == "compiled"


def test_accelerators_import_in_the_direction_of_the_table() -> None:
    """Compiled code keeps to the rooms as Python does."""
    for path in sources():
        room = path.relative_to(ROOT).parts[0]
        rooms = set(re.findall(r"^from (\w+)[\w.]* c?import", path.read_text(), re.MULTILINE)) & set(MAY_IMPORT)
        assert rooms <= MAY_IMPORT[room] | {room}, path
