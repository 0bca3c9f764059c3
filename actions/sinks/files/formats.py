"""The forms in which messages stand in files: JSON lines, text lines, SequenceFile, and rows for Parquet."""

from __future__ import annotations

import base64
import json
from typing import Any, Protocol

from actions.sinks.files import sequence
from actions.sinks.templates import compact_json, parsed
from pyddmq.actions import Job


class Format(Protocol):
    """One form.

    Attributes:
        suffix: How names of its files end.
        grows: Whether a file stays right when records are put behind those that it has.
    """

    suffix: str
    grows: bool

    def record(self, job: Job) -> Any:
        """Return what is kept of a message until it is written; bytes, where `grows`.

        Raises:
            Unprocessable: It cannot be written in this form.
        """
        ...

    def begin(self, name: str) -> bytes:
        """Return what a file begins with."""
        ...

    def mark(self, name: str, at: int) -> bytes:
        """Return what stands before the records of one write that begins at byte `at`."""
        ...

    def whole(self, records: list[Any]) -> bytes:
        """Return a file; in a thread, where it may take its time."""
        ...

    def check(self, record: Any) -> None:
        """Raise what keeps one record out of a file, where that is known only there."""
        ...


class _Lines:
    """Forms without anything around their records."""

    grows = True

    def begin(self, name: str) -> bytes:
        """Nothing."""
        return b""

    def mark(self, name: str, at: int) -> bytes:
        """Nothing."""
        return b""

    def whole(self, records: list[bytes]) -> bytes:
        """Return all records, one behind the other."""
        return b"".join(records)

    def check(self, record: bytes) -> None:
        """Nothing: it is bytes already."""


class JsonLines(_Lines):
    """One JSON object per line: the message with what is known of it, or its body alone."""

    suffix = ".jsonl"

    def __init__(self, *, bodies_alone: bool) -> None:
        self._bodies_alone = bodies_alone

    def record(self, job: Job) -> bytes:
        """Return the line of a message."""
        if self._bodies_alone:
            return compact_json(parsed(job)).encode("utf-8", "surrogatepass") + b"\n"
        message = job.message
        line: dict[str, Any] = {
            "topic": job.topic,
            "qid": job.qid,
            "offset": job.offset,
            "key": message.key,
            "tag": message.tag,
            "storedMs": message.stored_ms,
            "bornMs": message.born_ms,
            "properties": dict(message.properties),
        }
        data = job.data
        if isinstance(data, bytes):
            line.update(body_of(data))
        else:
            line["body"] = data
        return compact_json(line).encode("utf-8", "surrogatepass") + b"\n"


def body_of(data: bytes) -> dict[str, Any]:
    """Return a body as JSON where it is some, else as text, else as `bodyBase64`."""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return {"bodyBase64": base64.b64encode(data).decode()}
    try:
        return {"body": json.loads(text, parse_constant=_no_constant)}
    except (ValueError, RecursionError):
        return {"body": text}


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")


class TextLines(_Lines):
    r"""A body per line. A line feed in it is written \n, a carriage return \r, a backslash \\ (W61)."""

    suffix = ".text"

    def record(self, job: Job) -> bytes:
        """Return the line of a message."""
        raw = raw_body(job)
        if b"\\" in raw or b"\n" in raw or b"\r" in raw:
            raw = raw.replace(b"\\", b"\\\\").replace(b"\n", b"\\n").replace(b"\r", b"\\r")
        return raw + b"\n"


class SequenceRecords:
    """Hadoop's SequenceFile: the message's key, empty where it has none, and its body."""

    suffix = ".seq"
    grows = True

    def record(self, job: Job) -> bytes:
        """Return the record of a message."""
        return sequence.record(job.message.key or "", raw_body(job))

    def begin(self, name: str) -> bytes:
        """Return the header."""
        return sequence.header(name)

    def mark(self, name: str, at: int) -> bytes:
        """Return a sync marker."""
        return sequence.sync_mark(name)

    def whole(self, records: list[bytes]) -> bytes:
        raise AssertionError("a SequenceFile grows")

    def check(self, record: bytes) -> None:
        """Nothing: it is bytes already."""


class ParquetRows:
    """A row per message; see `actions.sinks.files.parquet`."""

    suffix = ".parquet"
    grows = False

    def record(self, job: Job) -> tuple[Any, ...]:
        """Return the row of a message."""
        message = job.message
        return (
            job.topic,
            job.qid,
            job.offset,
            message.key,
            message.tag,
            message.stored_ms,
            message.born_ms,
            dict(message.properties),
            raw_body(job),
        )

    def begin(self, name: str) -> bytes:
        """Nothing."""
        return b""

    def mark(self, name: str, at: int) -> bytes:
        """Nothing."""
        return b""

    def whole(self, records: list[tuple[Any, ...]]) -> bytes:
        """Return the file."""
        from actions.sinks.files.parquet import parquet

        return parquet(records)

    def check(self, record: tuple[Any, ...]) -> None:
        """Try its row alone."""
        from actions.sinks.files.parquet import check

        check(record)


def raw_body(job: Job) -> bytes:
    """Return the body as bytes; of one that actions made anew its JSON. Raises Unprocessable."""
    data = job.data
    if isinstance(data, bytes):
        return data
    if isinstance(data, str):
        return data.encode("utf-8", "surrogatepass")
    return compact_json(data).encode("utf-8", "surrogatepass")


def format_of(name: str, *, bodies_alone: bool) -> Format:
    """Return a form by its name in the options."""
    if name == "json":
        return JsonLines(bodies_alone=bodies_alone)
    if name == "text":
        return TextLines()
    if name == "sequence":
        return SequenceRecords()
    assert name == "parquet", "the options know no other"
    return ParquetRows()
