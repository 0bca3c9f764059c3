"""The first inputs of each target: real frames, files and configurations. `python -m tests.fuzz.seeds` writes them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from tests.fuzz import access, ack_journal, admin, directory, expressions, store_files
from tests.fuzz.targets import CORPUS, TARGETS
from tests.simulation.wire import Codec, consumer_codec, consumer_idl, producer_codec, producer_idl
from upstream.progress.journal import scan_segment

ROOT = Path(__file__).parents[2]


def seeds(name: str) -> dict[str, bytes]:
    """Return the first inputs of a target by their file names."""
    if name == "consumer":
        return dict(_streams("consumer"))
    if name == "producer":
        return dict(_streams("producer"))
    if name == "directory":
        return directory.seeds()
    if name in expressions.SEEDS:
        return dict(expressions.SEEDS[name])
    if name in access.SEEDS:
        return dict(access.SEEDS[name])
    if name in admin.SEEDS:
        return dict(admin.SEEDS[name])
    if name == "yaml":
        return {path.stem.replace(".", "-"): path.read_bytes() for path in (ROOT / "conf").glob("*.yaml")} | {
            "flow": b"{groups: [{group: g, topics: [{topic: t}]}], topics: {t: {queues: 2}}}\n",
            "alias": b"a: &a [1]\nb: *a\n",
        }
    if name in ("reply", "callback"):
        # Written by hand: what receivers say, and tricks with URLs.
        return {path.name: path.read_bytes() for path in (CORPUS / name).iterdir()}
    return dict(_files(name))


def _streams(service: str) -> Iterator[tuple[str, bytes]]:
    for compact in (False, True):
        kind = "compact" if compact else "binary"
        codec = consumer_codec(compact=compact) if service == "consumer" else producer_codec(compact=compact)
        calls = _consumer_calls(codec) if service == "consumer" else _producer_calls(codec)
        for flags, (method, frame) in enumerate(calls):
            yield f"{kind}-{method}-{flags}", bytes([flags % 32]) + frame
        yield f"{kind}-all", b"\x0b" + b"".join(frame for _, frame in calls)
    yield "http", b"\x03GET / HTTP/1.1\r\n\r\n"
    yield "bomb", b"\x03\x7f\xff\xff\xff" + bytes(16)


def _consumer_calls(codec: Codec) -> list[tuple[str, bytes]]:
    idl = consumer_idl
    context = idl.Context(groupId="billing", topic="orders", qid="pyddmq_broker-0_0")
    later = idl.ConsumeResult(context=context, successOffsets=[1, 5], failOffsets=[])
    result = idl.ConsumeResult(context=context, successOffsets=[0, 1, 2], failOffsets=[3], nextResult=later)
    pull = idl.PullRequest(groupId="billing", topic="orders", maxBatchSize=2, maxLingerTime=20, result=result)
    plain = idl.PullRequest(groupId="audit")
    return [
        ("pull", codec.call("pull", 1, request=plain)),
        ("pull", codec.call("pull", 2, request=pull)),
        ("submit", codec.call("submit", 3, result=result)),
        ("getConsumeStats", codec.call("getConsumeStats", 4, request=idl.ConsumeStatsRequest(group="billing"))),
        ("pull-again", codec.call("pull", 2**31 - 1, request=pull)),
    ]


def _producer_calls(codec: Codec) -> list[tuple[str, bytes]]:
    idl = producer_idl
    message = idl.Message(
        topic="orders",
        key="k",
        value="",
        hashId=7,
        tags="red",
        partitionId=-1,
        body=b'{"id": 1}',
        version="fuzz",
        properties={"colour": "blue", "a": "b"},
    )
    fresh = idl.Message(topic="fresh", key="", value="text", hashId=0, tags="", partitionId=-2)
    delay = idl.DelayMessage(topic="orders", body=b"x", tags="red", action=1, timestamp=1_900_000_000, dmsgtype=2)
    commit = idl.EndTransaction(producerGroup="shop", handle=f"0-0-{'0' * 32}", state=8, remark="fuzz")
    fetch = idl.CheckRequest(producerGroup="shop", maxBatchSize=2, maxLingerTime=20, answers=[commit])
    return [
        ("sendSync", codec.call("sendSync", 1, message=message, timeout=100)),
        ("sendAsync", codec.call("sendAsync", 2, message=fresh)),
        ("sendBatchSync", codec.call("sendBatchSync", 3, messages=[message, message, fresh], receipts=True)),
        ("sendDelaySync", codec.call("sendDelaySync", 4, delayMessage=delay, timeout=100)),
        ("sendHalfSync", codec.call("sendHalfSync", 5, message=message, producerGroup="shop", timeout=100)),
        ("endTransaction", codec.call("endTransaction", 6, decision=commit)),
        ("fetchChecks", codec.call("fetchChecks", 7, request=fetch)),
    ]


def _files(name: str) -> Iterator[tuple[str, bytes]]:
    clean, killed = store_files.image(True), store_files.image(False)
    if name == "log":
        content = b"".join(killed[path] for path in sorted(killed) if path.startswith(store_files.LOG)).rstrip(b"\0")
        for flags in (0, 1, 6, 15):
            yield f"flags-{flags}", bytes([flags]) + content
    elif name == "queue":
        yield "clean", b"\x01" + clean[store_files.QUEUE]
        yield "killed", b"\x00" + clean[store_files.QUEUE]
        yield "short", b"\x08" + clean[store_files.QUEUE][:70]
    elif name == "index":
        content = clean[store_files.index_path()]
        for flags in (0, 1, 8):
            yield f"flags-{flags}", bytes([flags]) + content
    elif name == "state":
        for number, path in enumerate(store_files.STATE_FILES):
            for flag, image in ((0, killed), (128, clean)):
                yield (
                    f"{flag}-{path.rpartition('/')[2]}-{number}",
                    bytes([flag | number]) + image.get(path, b"").rstrip(b"\0"),
                )
    elif name == "acks":
        path = ack_journal.segment_path()
        content = ack_journal.image()[path].rstrip(b"\0")
        yield "segment", b"\x00" + content
        yield "second", b"\x02" + content
        yield (
            "blocks",
            b"\x01" + b"".join(len(each).to_bytes(2, "big") + each for each in _payloads(ack_journal.image()[path])),
        )


def _payloads(content: bytes) -> Iterator[bytes]:
    """Payloads of the blocks of a segment, as they stand one after the other."""
    from upstream.progress.journal_format import BLOCK_HEADER, read_block

    assert scan_segment(1, content).entries
    at = 0
    while (payload := read_block(1, memoryview(content), at)) is not None:
        yield bytes(payload)
        at += BLOCK_HEADER.size + len(payload)


if __name__ == "__main__":
    for target in TARGETS:
        (CORPUS / target).mkdir(parents=True, exist_ok=True)
        for file, data in seeds(target).items():
            (CORPUS / target / file).write_bytes(data)
