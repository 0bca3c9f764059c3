"""The benchmark's own parts: what its clients send is valid Thrift, what they read is right, and its sums hold."""

from __future__ import annotations

import cProfile
import os
import struct
import time
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import thriftpy2
from thriftpy2.protocol.compact import TCompactProtocol
from thriftpy2.thrift import TMessageType, TPayload
from thriftpy2.transport import TMemoryBuffer

from bench import accelerators, against, lag_journal, stalls
from bench.__main__ import rocketmq_is_there
from bench.clients import compact, load, resp
from bench.clients.compact import Message, Pulled, UnexpectedReply
from bench.clients.load import RedisConnection
from bench.clients.processes import ClientProcess, publish_load
from bench.measures.runs import Figures, percentiles
from bench.measures.timer_figures import Burst, Start, Taken, TimerPlan, burst_figures, parts, steady_figures
from bench.reports import report, requests
from bench.servers import profile
from bench.servers.processes import BenchError, core_seconds, cores, process_cpu_seconds, process_memory
from compile_accelerators import ROOMS

# thriftpy2 is typed only in part.
_Compact: Any = TCompactProtocol
_Buffer: Any = TMemoryBuffer

ROOT = Path(__file__).resolve().parents[3]
SVG = "{http://www.w3.org/2000/svg}"
producer = thriftpy2.load(str(ROOT / "thrift" / "producer.thrift"), module_name="bench_producer_thrift")
consumer = thriftpy2.load(str(ROOT / "thrift" / "consumer.thrift"), module_name="bench_consumer_thrift")


def _read_call(frame: bytes, service: Any) -> tuple[str, Any]:
    (size,) = struct.unpack_from(">I", frame)
    assert size == len(frame) - 4
    protocol = _Compact(_Buffer(frame[4:]))
    name, kind, _ = protocol.read_message_begin()
    assert kind == TMessageType.CALL
    arguments = getattr(service, f"{name}_args")()
    protocol.read_struct(arguments)
    return name, arguments


def _reply(name: str, result: TPayload, kind: int = TMessageType.REPLY) -> bytes:
    buffer = _Buffer()
    protocol = _Compact(buffer)
    protocol.write_message_begin(name, kind, 1)
    protocol.write_struct(result)
    protocol.write_message_end()
    return bytes(buffer.getvalue())


def _messages(count: int) -> list[Message]:
    return [
        Message(b"bench", load.key_of(number), load.body_of(number, 7), load.TAG, load.PROPERTIES)
        for number in range(count)
    ]


@pytest.mark.parametrize("count", [1, 2, 14, 15, 32])
def test_publish_frames_read_as_thrift(count: int) -> None:
    """Another implementation reads sendSync and sendBatchSync with every field where it belongs."""
    name, arguments = _read_call(compact.publish_frame(_messages(count)), producer.ProducerService)
    if count == 1:
        assert name == "sendSync"
        assert arguments.timeout == 5_000
        members = [arguments.message]
    else:
        assert name == "sendBatchSync"
        members = arguments.messages
    assert [member.key for member in members] == [load.key_of(number).decode() for number in range(count)]
    last = members[-1]
    assert (last.topic, last.tags, last.partitionId, last.hashId) == ("bench", "created", -1, 0)
    assert last.body == load.body_of(count - 1, 7)
    assert len(last.body) == 1_024
    assert last.properties == {"traceId": "5f1c9a7be2d04c11", "origin": "checkout"}


def test_pull_frames_carry_acknowledgements_as_a_chain() -> None:
    """Results of two queues ride on one pull, each with its context and offsets."""
    first = Pulled(b"bench", b"q_0", [3, 4, 1_000_000], [])
    second = Pulled(b"bench", b"q_1", list(range(40)), [])
    _, arguments = _read_call(compact.pull_frame(b"g", 32, 250, [first, second]), consumer.ConsumerService)
    request = arguments.request
    assert (request.groupId, request.topic, request.maxBatchSize, request.maxLingerTime) == ("g", None, 32, 250)
    assert request.result.successOffsets == [3, 4, 1_000_000]
    assert request.result.failOffsets == []
    assert (request.result.context.topic, request.result.context.qid) == ("bench", "q_0")
    assert request.result.nextResult.successOffsets == list(range(40))
    assert request.result.nextResult.nextResult is None
    _, arguments = _read_call(compact.pull_frame(b"g", 1, 0), consumer.ConsumerService)
    assert arguments.request.result is None
    name, arguments = _read_call(compact.submit_frame(b"g", [first]), consumer.ConsumerService)
    assert (name, arguments.result.successOffsets) == ("submit", [3, 4, 1_000_000])


@pytest.mark.parametrize("count", [1, 14, 15, 32])
def test_pull_replies_give_offsets_and_bodies(count: int) -> None:
    """Context, offsets and bodies come out of a reply with and without keys, tags and properties."""
    messages = [
        consumer.Message(
            key=f"key-{number}" if number % 2 else None,
            value=load.body_of(number, number),
            tag="created",
            offset=number * 1_000,
            properties={"a": "b"} if number % 3 else None,
        )
        for number in range(count)
    ]
    context = consumer.Context(groupId="g", topic="bench", qid="pyddmq_broker-0_3")
    response = consumer.PullResponse(context=context, messages=messages)
    pulled = compact.scan_pull_reply(_reply("pull", consumer.ConsumerService.pull_result(success=response)))
    assert pulled is not None
    assert (pulled.topic, pulled.qid) == (b"bench", b"pyddmq_broker-0_3")
    assert pulled.offsets == [number * 1_000 for number in range(count)]
    assert [load.stamp_of(body) for body in pulled.bodies] == [(number, number) for number in range(count)]


def test_empty_pull_reply_is_told_apart_from_a_refusal() -> None:
    """No message in time is None; a PullException is an error of the run, whatever its text."""
    empty = consumer.PullResponse(context=consumer.Context(), messages=[])
    result = consumer.ConsumerService.pull_result
    assert compact.scan_pull_reply(_reply("pull", result(success=empty))) is None
    refusal = consumer.PullException(code=1, message="no such group")
    with pytest.raises(UnexpectedReply, match="no such group"):
        compact.scan_pull_reply(_reply("pull", result(error=refusal)))


def test_publish_and_submit_replies_are_checked() -> None:
    """Only code 0 and true pass, so that a benchmark of refusals cannot look fast."""
    result, submit = producer.ProducerService.sendSync_result, consumer.ConsumerService.submit_result
    compact.check_publish_reply(_reply("sendSync", result(success=producer.Result(code=0, msg="ok"))))
    compact.check_submit_reply(_reply("submit", submit(success=True)))
    with pytest.raises(UnexpectedReply):
        compact.check_publish_reply(_reply("sendSync", result(success=producer.Result(code=15, msg="too fast"))))
    with pytest.raises(UnexpectedReply):
        compact.check_submit_reply(_reply("submit", submit(success=False)))


def test_redis_replies_end_where_they_end() -> None:
    """At every cut the scanner asks for more, and at the end it names the position; entry ids come out in order."""
    body = load.body_of(5, 6)
    fields = (b"key", b"key-00000001", b"body", body)
    entry = b"*2\r\n$15\r\n1760000000000-7\r\n" + resp.command(*fields)
    reply = b"*1\r\n*2\r\n$5\r\nbench\r\n*1\r\n" + entry
    for cut in range(len(reply)):
        assert resp.reply_end(reply[:cut], 0) is None
    assert resp.reply_end(reply + b"+OK\r\n", 0) == len(reply)
    assert list(resp.entry_ids(reply)) == [b"1760000000000-7"]
    for simple in (b"+OK\r\n", b":12\r\n", b"$-1\r\n", b"*-1\r\n", b"*0\r\n", b"$0\r\n\r\n"):
        assert resp.reply_end(simple, 0) == len(simple)


def test_requests_go_over_every_key_equally_often() -> None:
    """Prepared batches hold 1,000 keys in turn, so that order per key is neither absent nor all there is."""
    for batch in (1, 8, 32):
        starts = range(0, load.rounded(batch), batch)
        keys = [load.key_of(number) for start in starts for number in range(start, start + batch)]
        assert len(keys[0]) == 12
        assert {keys.count(key) for key in set(keys)} == {len(keys) // load.KEYS}


def test_percentiles_are_nearest_ranks() -> None:
    """The p-th percentile is a value that was seen, with at least that share at or below it."""
    values = [number * 1_000_000 for number in range(1, 1_001)]
    assert percentiles(values) == {"p50": 500.0, "p99": 990.0, "p99.9": 999.0, "max": 1_000.0}
    assert percentiles([2_000_000]) == {"p50": 2.0, "p99": 2.0, "p99.9": 2.0, "max": 2.0}


def test_cpu_clock_of_a_process_is_its_own() -> None:
    """What is read from outside is user and system time: it lies between two readings of the process itself."""
    before = time.clock_gettime_ns(time.CLOCK_PROCESS_CPUTIME_ID)
    seen = process_cpu_seconds(os.getpid())
    after = time.clock_gettime_ns(time.CLOCK_PROCESS_CPUTIME_ID)
    assert before <= round(seen * 1e9) <= after
    memory = process_memory(os.getpid())
    assert memory.own > 1_000_000
    assert memory.files > 0


def test_busy_time_of_a_core_leaves_out_idleness_and_waits_for_the_disk() -> None:
    """User, nice, system and interrupts count; a core that is not there is said."""
    tick = os.sysconf("SC_CLK_TCK")
    stat = f"cpu  9 9 9 9 9 9 9 9\ncpu0 {tick} {2 * tick} {3 * tick} 77777 88888 {4 * tick} {5 * tick} 99999 0 0\n"
    assert core_seconds(0, stat) == 15.0
    assert core_seconds(cores().server) > 0
    with pytest.raises(BenchError, match="core 99999"):
        core_seconds(99999)


def test_client_process_reports_what_went_wrong() -> None:
    """A client that cannot connect ends the run with its traceback, not with a hang."""
    client = ClientProcess(cores().client, RedisConnection, ("127.0.0.1", 1), b"s", b"g")
    with pytest.raises(BenchError, match="ConnectionRefusedError"):
        client.result()
    with pytest.raises(BenchError, match="AttributeError"):
        ClientProcess(cores().client, publish_load, None, 1, 1).result()


def test_table_shows_medians_spread_and_ratio() -> None:
    """Three runs of both servers become one row; a server that was not measured shows a dash."""

    def runs(server: Any, values: Sequence[float], each: float) -> list[Figures]:
        return [
            Figures(
                measure="publish",
                server=server,
                batch=32,
                messages=9,
                cpu_us=value,
                core_us=value * each,
                per_second=value * 1_000,
            )
            for value in values
        ]

    results = [*runs("pyddmq", [9.0, 8.0, 10.0], 2.0), *runs("redis", [18.0, 16.0, 20.0], 1.5)]
    process, core = "9.0 (8.0-10.0) | 18.0 (16.0-20.0) | 0.50", "18.0 (16.0-20.0) | 27.0 (24.0-30.0) | 0.67"
    assert f"| publish | 32 | {process} | {core} | 9,000 | 18,000 |\n" in _text(results, {"cpu": "test"})
    assert "| publish | 32 | 9.0 (8.0-10.0) | - | - | 18.0 (16.0-20.0) | - | - | 9,000 | - |\n" in _text(results[:3])
    assert "| publish | 32 | 9.0 | - | - | 18.0 | - | - | 9,000 | - |\n" in _text(results[:1])
    assert "The machine was busy (load 2.00)" in _text(results, {"load_before": "2.00"})
    assert "busy" not in _text(results, {"load_before": "0.10"})
    assert "Measured on: cpu test.\n" in _text(results, {"cpu": "test", "isal": None})


def _text(results: Sequence[Figures], facts: dict[str, Any] | None = None) -> str:
    return "".join(report.sections(results, facts or {}).values())


def _single(server: Any, measure: str, clients: int, *values: float) -> list[Figures]:
    return [
        Figures(measure=measure, server=server, batch=1, clients=clients, messages=9, cpu_us=value, core_us=2 * value)
        for value in values
    ]


def _singles() -> list[Figures]:
    """The node at twice and at four times what Redis takes, in two rounds, and one of its rivals."""
    found = []
    for measure in requests.TITLES:
        for clients in (1, 256):
            found += _single("pyddmq", measure, clients, 40.0, 100.0)
            found += _single("redis", measure, clients, 20.0, 25.0)
            found += _single("nats, synced", measure, clients, 72.0, 74.0)
    return found


def test_requests_are_compared_with_redis_round_by_round() -> None:
    """Medians of each server, median and range of each round's ratios; of a busy machine no figures of its core."""
    text = _text(_singles())
    assert "| server CPU per message, us | clients | pyddmq | Redis | NATS, synced | pyddmq : Redis |\n" in text
    assert "| publish | 256 | 70.0 | 22.5 | 73.0 | 3.00 (2.00-4.00) |\n" in text
    assert "| pull + ack | 1 | 8,750 | 22,500 | 6,851 | 0.38 (0.25-0.50) |\n" in text
    assert "RocketMQ" not in text
    assert "per second and core" not in _text(_singles(), {"load_before": "2.00"})
    alone = _text([each for each in _singles() if each.server == "pyddmq"])
    assert "| publish | 256 | 70.0 | - |\n" in alone


def test_picture_has_a_line_and_a_name_for_each_server() -> None:
    """The picture is XML with two panels; names at the ends of lines do not cover each other."""
    root = ElementTree.fromstring(requests.picture(_singles()))
    names = [each for each in root.iter(f"{SVG}text") if each.get("class") == "name"]
    assert [each.text for each in names] == ["NATS, synced", "pyddmq", "Redis"] * 2
    heights = [float(each.attrib["y"]) for each in names[:3]]
    assert all(low - high >= 16 for high, low in pairwise(heights))
    assert len(list(root.iter(f"{SVG}path"))) == 6


def test_clients_that_do_little_and_one_beside_many_have_their_tables() -> None:
    """Shares of a core and memory of a node with idle clients; the ratio of a light client's p99."""
    facts = {"pulls": 1_000, "none": 0.001, "idle": 0.002, "parked": 0.02}
    memory = {"none": 1 << 20, "idle": 2 << 20, "parked": 3 << 20}
    idle = Figures(measure="idle", server="pyddmq", batch=1, messages=0, clients=9_000, memory=memory, facts=facts)
    alone = {"alone_p50_ms": 1.0, "alone_p99_ms": 2.0}
    ack_ms = {"p50": 2.0, "p99": 3.0}
    light = Figures(measure="light", server="redis", batch=1, messages=9, clients=256, ack_ms=ack_ms, facts=alone)
    text = _text([idle, light])
    assert "| 9,000 connections | 0.20 | 2.0 |\n| 1,000 of them pull for 30 s | 2.00 | 3.0 |\n" in text
    assert "| redis | 1.00 | 2.00 | 2.00 | 3.00 | 1.50 |\n" in text


def _timers(server: Any, late_ms: int, **facts: float) -> list[Figures]:
    """Steady figures and those of a burst, all deliveries as late as said."""
    plan = TimerPlan(pending=1_000, rate=50, seconds=1.0, burst=200, rival_pending=100)
    taken = Taken(
        before=1_000_000,
        after=1_064_000,
        filled=0.5,
        restart=Start(0.25, 0.15),
        empty_restart=Start(0.2, 0.125),
        lost=0,
    )
    times = [(second * 1_000_000_000, second * 1_000_000_000 + late_ms * 1_000_000) for second in range(10)]
    burst = Burst(3_000_000_000, 5_000_000_000, times, [1_000_000] * 10, times, [late_ms * 2_000_000] * 10)
    steady = steady_figures(server, plan, 1_000, [late_ms * 1_000_000] * 50, taken)
    return [replace(each, facts={**each.facts, **facts}) for each in (steady, burst_figures(server, 200, burst))]


def test_timers_stand_beside_each_slot_width_of_rocketmq() -> None:
    """A row each, with the width of its slots."""
    results = [*_timers("pyddmq", 4), *_timers("rocketmq", 500, precision_ms=1_000)]
    results += _timers("rocketmq", 2, precision_ms=100)
    text = _text(results)
    assert "| pyddmq | 1,000 | 50 | 4.00 | 4.00 | 4.00 | 4.00 | 0 |\n" in text
    assert "| rocketmq, timerPrecisionMs 1000 | 1,000 | 50 | 500.00 |" in text
    assert "| pyddmq | 1,000 | 2,000 | 1.0 | 1.0 | 64.0 | 0.25, 0.15 | 0.20, 0.12 | 50.00, 25.00 | 0 |\n" in text
    assert "| pyddmq | 200 | 2.00 | 8.00 | 1.00 | 4.00 | 4.00 |\n" in text


def test_other_topics_messages_count_while_the_burst_is_on() -> None:
    """Of another topic's clients only what was due to be sent between burst and drain is taken."""
    seconds = [second * 1_000_000_000 for second in range(10)]
    pulls = [(sent, sent + place * 1_000_000) for place, sent in enumerate(seconds)]
    quiet = [(0, 7_000_000)]
    found = burst_figures("pyddmq", 9, Burst(seconds[3], seconds[5], quiet, [1], pulls, [1_000_000] * 10))
    assert found.latency_ms["max"] == 5.0
    assert found.facts["quiet_pull_p99_ms"] == 7.0


@pytest.mark.parametrize("pending", [4, 641, 1_000_000])
def test_parts_of_what_is_pending_are_all_of_it(pending: int) -> None:
    """The counts add up, and each part begins where the one before ends."""
    found = list(parts(pending, 1_000))
    assert sum(count for count, _, _ in found) == pending
    ends = [begin + count * spacing for count, begin, spacing in found]
    assert all(abs(begin - end) < 1.0 for end, (_, begin, _) in zip([1_000.0, *ends], found, strict=False))


def test_machine_without_java_is_measured_without_rocketmq(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One sentence says what is missing and how to get it; nothing is fetched."""
    monkeypatch.setenv("PATH", "")
    assert not rocketmq_is_there()
    assert "needs java, which is not installed (apt install openjdk-17-jdk-headless)" in capsys.readouterr().err


def test_tables_go_between_their_marks_again_and_again() -> None:
    """A second run replaces the first one's table and leaves everything else; without marks it says so."""
    document = "# Title\n\n<!-- results -->\n<!-- /results -->\n\nEnd\n"
    once = report.put_between(document, "results", "| a |\n")
    assert once == "# Title\n\n<!-- results -->\n\n| a |\n\n<!-- /results -->\n\nEnd\n"
    assert report.put_between(once, "results", "| b |\n") == once.replace("| a |", "| b |")
    with pytest.raises(BenchError, match="no <!-- profile pull -->"):
        report.put_between(document, "profile pull", "")


def test_profile_table_names_functions_and_figures_per_message(tmp_path: Path) -> None:
    """A profile becomes rows with own time first, paths of the project relative to it."""
    profiler = cProfile.Profile()
    profiler.runcall(load.key_of, 5)
    profiler.dump_stats(tmp_path / "node.prof")
    text = profile.table(tmp_path / "node.prof", 1, "nothing much")
    assert "`bench/clients/load.py:" in text
    assert "key_of`" in text


def test_small_parts_of_callbacks_are_named_where_small_callbacks_are_asked_for() -> None:
    """A part below the usual least is left out of the usual table, and shown where everything is asked for."""
    found = {
        "seconds": 1.0,
        "callbacks": [("NodeTurns.end", 0.004, 0.003, [("pwritev a", 0.002), ("pwritev b", 1e-5)])],
    }
    usual = "\n".join(stalls.table(found, 0.5))
    everything = "\n".join(stalls.table(found, 0.0))
    assert "| `NodeTurns.end` | 1.00 | 4.00 | 4.00 | 4.00 | 3.00 | pwritev a 2.00 |" in usual
    assert "pwritev a 2.00, pwritev b 0.01 |" in everything


def test_two_trees_take_turns_and_their_medians_are_compared() -> None:
    """Who begins alternates; one round that something else disturbed moves no ratio."""
    sides = (against.Side("this", Path("/a")), against.Side("other", Path("/b")))
    runs: list[str] = []
    figures = {"this": iter((3.0, 99.0, 3.0)), "other": iter((2.0, 2.0, 2.0))}

    def measure(side: against.Side) -> dict[tuple[str, int], float]:
        runs.append(side.name)
        return {("pull", 8): next(figures[side.name])}

    found = against.interleaved(sides, measure, 3)
    assert runs == ["other", "this", "this", "other", "other", "this"]
    assert found == {"this": {("pull", 8): [3.0, 99.0, 3.0]}, "other": {("pull", 8): [2.0, 2.0, 2.0]}}
    assert against.table(sides, found).splitlines()[2:] == ["| pull | 8 | 1.50 | 1.50 to 49.50 |"]


def test_every_accelerator_is_measured() -> None:
    """Each module that is compiled stands in the table of what accelerators bring."""
    sources = {path.relative_to(ROOT).as_posix() for room in ROOMS for path in (ROOT / room).rglob("*_accelerator.pyx")}
    assert set(accelerators.WHERE.values()) == sources


def test_lag_journal_is_measured_and_keeps_its_bytes(tmp_path: Path) -> None:
    """Small: ten bytes per queue and snapshot at most, under one for a queue that rests."""
    figures = lag_journal.measure(f"{tmp_path}/lag", queues=200, snapshots=13, moving=0.3, polled=True)
    assert 0 < figures.idle_bytes < 1
    assert figures.idle_bytes < figures.queue_bytes <= 10
    assert figures.queue_bytes < figures.hour_bytes
    assert min(figures.write_ms, figures.minute_bytes, figures.rollup_ms, figures.read_rows) > 0
