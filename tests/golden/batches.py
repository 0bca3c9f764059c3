"""Batches as RocketMQ 5.3.3's client encodes them, and the messages in them.

`rocketmq-5.3.3-batches.txt` has a line per batch: name of the case, and the encoded batch in hex, or `refused`. It is
the output of `Batches.java write` (tests/interop); `make interop` checks that it still is.
"""

from __future__ import annotations

from pathlib import Path

from broker.log.batch import BatchMessage

BATCHES_FILE = Path(__file__).parent / "rocketmq-5.3.3-batches.txt"


def _message(body: str, key: str, *, topic: str = "orders", flag: int = 0, **more: str) -> BatchMessage:
    properties = {"UNIQ_KEY": key, **more}
    return BatchMessage(topic, body.encode(), properties, flag)


# Properties in the order that Java's hash map has them in.
BATCHES: dict[str, list[BatchMessage]] = {
    "one": [_message("a", "K1")],
    "two": [_message("first", "K1", flag=7), _message("second", "K2", flag=-1)],
    "named": [
        BatchMessage(
            "orders", "ä中😀".encode(), {"color": "röt", "KEYS": "key-1 key-2", "UNIQ_KEY": "K1", "TAGS": "TagA"}
        ),
        _message("x", "K2", flag=-(1 << 31)),
    ],
    "empty-tags": [BatchMessage("orders", b"a", {"b": "c", "KEYS": "k", "UNIQ_KEY": "K1", "TAGS": ""})],
    "not-waiting": [_message("a", "K1", WAIT="false"), _message("b", "K2", WAIT="false")],
    "waiting-and-silent": [_message("a", "K1", WAIT="true"), _message("b", "K2")],
    "level-zero": [_message("a", "K1", DELAY="0")],
    "waits-differ": [_message("a", "K1", WAIT="false"), _message("b", "K2")],
    "topics-differ": [_message("a", "K1"), _message("b", "K2", topic="other")],
    "delayed": [_message("a", "K1"), _message("b", "K2", DELAY="3")],
    "retry-topic": [_message("a", "K1", topic="%RETRY%group")],
    "empty": [],
}


def golden_batches() -> dict[str, bytes | None]:
    """Name to encoded batch, None where the client makes none."""
    lines = [line.split() for line in BATCHES_FILE.read_text().splitlines()]
    return {case: None if encoded == "refused" else bytes.fromhex(encoded) for case, encoded in lines}
