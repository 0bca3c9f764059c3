"""RocketMQ 5.3.3's client still encodes the golden batches, and decodes ours."""

from __future__ import annotations

import subprocess
from random import Random

import pytest

from broker.format.unique_key import UniqueKeys
from broker.log.batch import BatchMessage, decode_batch, encode_batch
from tests.golden.batches import BATCHES_FILE
from tests.interop.rocketmq import JVM_OPTIONS, Programs

pytestmark = pytest.mark.long

SECONDS_MAX = 60


def batches(compiled: Programs, mode: str, given: str = "") -> str:
    """Run the Java program to its end and return what it printed; with assertions, which are one of its checks."""
    command = ["java", "-ea", *JVM_OPTIONS, "-cp", compiled.class_path, "Batches", mode]
    done = subprocess.run(command, input=given, capture_output=True, text=True, timeout=SECONDS_MAX, check=False)
    assert not done.returncode, done.stderr[-2000:]
    return done.stdout


def test_rocketmqs_client_encodes_the_golden_batches(compiled: Programs) -> None:
    """The file of the normal suite is what the client encodes and refuses, line for line."""
    assert batches(compiled, "write") == BATCHES_FILE.read_text()


def test_rocketmq_decodes_our_batches(compiled: Programs) -> None:
    """Bodies, flags and properties of random batches are what we encoded."""
    random = Random(5)
    keys = UniqueKeys(b"\x0a\x00\x00\x01", random)
    encoded = []
    for _ in range(50):
        messages = [
            BatchMessage(
                "t",
                random.randbytes(random.randint(1, 2000)),
                {f"n{place}": random.choice(("ä中😀", "plain", " ")) for place in range(random.randint(0, 5))},
                random.randint(-(1 << 31), (1 << 31) - 1),
            )
            for _ in range(random.randint(1, 30))
        ]
        encoded.append(encode_batch(messages, unique_keys=keys.take(len(messages), 1_700_000_000_000)))
    lines = batches(compiled, "read", "\n".join(map(bytes.hex, encoded))).splitlines()
    for data, line in zip(encoded, lines, strict=True):
        wanted = []
        for member in decode_batch(data):
            pairs = sorted(pair.split(b"\x01") for pair in member.properties.split(b"\x02")[:-1])
            shown = b"{%b}" % b", ".join(b"=".join(pair) for pair in pairs)
            wanted += [str(member.flag), member.body.hex(), shown.hex()]
        assert line.split() == wanted
