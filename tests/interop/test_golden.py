"""libthrift 0.9.2, which DDMQ is built with, still writes the golden frames, reads ours, and talks with a node."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from proxy.wire.call import BINARY, CALL, COMPACT, Call, message_head, parse_call
from proxy.wire.replies import encode_pull_exception, encode_result_reply
from proxy.wire.values import Receipt
from tests.golden import FRAMES_FILE, golden_frames
from tests.golden.values import BODY, STRANGE
from tests.interop.rocketmq import JVM_OPTIONS, Programs
from tests.running_node import RunningNode

pytestmark = pytest.mark.long

SECONDS_MAX = 120
YAML = """
node: {segmentBytes: 1048576, maxMessageBytes: 500000}
topics:
  orders: {queues: 1}
groups:
  - group: billing
    topics:
      - {topic: orders, retryIntervals: [5, -1], maxPullBatchSize: 32}
  - group: reports
    topics:
      - {topic: orders, actions: [LowLevel], maxPullBatchSize: 32}
"""


def golden(compiled: Programs, *arguments: str, given: str = "") -> str:
    """Run the Java program to its end and return what it printed."""
    command = ["java", *JVM_OPTIONS, "-cp", compiled.class_path, "Golden", *arguments]
    done = subprocess.run(command, input=given, capture_output=True, text=True, timeout=SECONDS_MAX, check=False)
    assert not done.returncode, done.stderr[-2000:]
    return done.stdout


def found_in(compiled: Programs, frames: list[bytes]) -> list[Any]:
    """What libthrift finds in frames: [method, type, sequence number, struct], values as [type, value]."""
    return [json.loads(line) for line in golden(compiled, "read", given="\n".join(map(bytes.hex, frames))).splitlines()]


def text(value: str) -> list[str]:
    """A text as `found_in` shows it."""
    return ["string", value.encode().hex()]


def test_libthrift_writes_the_golden_frames(compiled: Programs) -> None:
    """The file of the normal suite is what the library writes, line for line."""
    assert golden(compiled, "write") == FRAMES_FILE.read_text()


def test_libthrift_reads_golden_frames_and_our_additions(compiled: Programs) -> None:
    """It decodes every frame to its end, and finds the fields that are ours alone under ids that DDMQ skips."""
    ours = []
    for protocol in (BINARY, COMPACT):
        call: Call = parse_call(message_head(protocol, CALL, "sendBatchSync", 3) + b"\x00")
        receipts = [Receipt("m", STRANGE, number << 33) for number in range(17)]
        ours.append(
            encode_result_reply(call, 0, "OK", msg_id="m", qid="q", offset=1 << 40, handle="h", receipts=receipts)
        )
        call = parse_call(message_head(protocol, CALL, "pull", 3) + b"\x00")
        ours.append(encode_pull_exception(call, 4, STRANGE))
    frames = [each.frame for each in golden_frames()]
    found = found_in(compiled, frames + ours)
    assert len(found) == len(frames) + len(ours)
    receipt = [
        ["struct", {"1": text("m"), "2": text(STRANGE), "3": ["i64", str(number << 33)]}] for number in range(17)
    ]
    fields = {
        "1": ["i32", 0],
        "2": text("OK"),
        "101": text("m"),
        "102": text("q"),
        "103": ["i64", str(1 << 40)],
        "104": text("h"),
        "105": ["list", receipt],
    }
    sent = ["sendBatchSync", 2, 3, ["struct", {"0": ["struct", fields]}]]
    refused = ["pull", 2, 3, ["struct", {"1": ["struct", {"1": ["i32", 4], "2": text(STRANGE)}]}]]
    assert found[len(frames) :] == [sent, refused] * 2


def test_libthrift_talks_with_a_node(compiled: Programs, tmp_path: Path) -> None:
    """TSocket and TFramedTransport, both protocols: publish, pull, submit, stats, fetch, refusals."""
    with RunningNode(YAML, tmp_path) as node:
        lines = golden(compiled, "live", node.producer, node.consumer).splitlines()
    answers = [json.loads(line) for line in lines]
    assert len(answers) == 2 * 15
    for protocol, start, some in (("binary", 0, answers[:15]), ("compact", 5, answers[15:])):
        assert [each[2] for each in some] == [*range(1, 8), *range(1, 9)], "every answer is that of its call"
        check_conversation(protocol, start, [each[1:2] + each[3:] for each in some])


def check_conversation(protocol: str, start: int, answers: list[Any]) -> None:
    """Check the 15 answers that one connection pair got, as [type, struct]."""
    codes = [fields["0"][1]["1"] for _, (_, fields) in answers[:7]]
    assert codes == [["i32", code] for code in (0, 0, 0, 0, 11, 14, 33)]
    first, second = (fields["0"][1] for _, (_, fields) in answers[7:9])
    assert first["1"] == ["struct", {"1": text("billing"), "2": text("orders"), "3": text("pyddmq_broker-0_0")}]
    messages = first["2"][1] + second["2"][1]
    assert [each[1]["4"] for each in messages[:4]] == [["i64", str(start + number)] for number in range(4)]
    assert {each[1]["4"][1] for each in messages[4:]} <= {str(start + number) for number in (3, 4)}
    for number, (_, message) in enumerate(messages[:3]):
        assert message["1"] == text(protocol)
        assert message["2"] == ["string", BODY.hex()]
        assert message["3"] == text("tag")
        assert message["5"] == ["map", [[text("number"), text(str(number))]]]
    assert messages[3][1]["1"] == text(protocol + STRANGE)
    assert ["string", b"old".hex()] in [each[1]["2"] for each in messages[4:]]
    assert answers[9] == [2, ["struct", {"0": ["bool", True]}]]
    [(_, row)] = answers[10][1][1]["0"][1]
    qid = text("pyddmq_broker-0_0")
    assert row["3"] == row["4"] == ["map", [[qid, ["i64", str(start + 5)]]]]
    assert answers[11][1][1]["1"][1]["1"][0] == "i32", "a PullException has a code"
    refused, fetched = (fields["0"][1] for _, (_, fields) in answers[12:14])
    assert refused["1"] == ["i32", 13], "another cluster's"
    assert "1" not in fetched, "served"
    [(_, queue)] = fetched["10"][1]
    assert [each[1]["4"] for each in queue["10"][1]] == [["i64", str(number)] for number in range(5 + start)]
    assert answers[14][0] == 3, "a TApplicationException"
