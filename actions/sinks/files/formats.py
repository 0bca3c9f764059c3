"""The forms in which messages stand in files: JSON lines, text lines, SequenceFile, and rows for Parquet.

SequenceFile is Hadoop's, version 6, uncompressed: keys of class Text, values of class BytesWritable.

    SEQ 0x06 | Text key class | Text value class | compressed 0 | by block 0 | metadata pairs, i32 0 | sync[16]
    record:  length of key and value, i32 | length of the key, i32 | key | value
    sync:    -1, i32 | sync[16]

Text is a variable-length number of bytes and UTF-8; BytesWritable is an i32 and the bytes; all numbers are big-endian.
A sync marker may stand before any record: a reader that begins in the middle looks for one. It comes from the name of
the file here, so that a repeat writes the same bytes. (org.apache.hadoop.io.SequenceFile, WritableUtils.writeVLong.)
"""

from __future__ import annotations

import base64
import hashlib
import struct
from typing import Any, Protocol

import pyarrow
import pyarrow.parquet

from actions.tombstones import is_tombstone
from actions.transform.exact_json import body_of, json_line, json_of
from pyddmq.actions import Job, Unprocessable

_KEY_CLASS = "org.apache.hadoop.io.Text"
_VALUE_CLASS = "org.apache.hadoop.io.BytesWritable"
_I32 = struct.Struct(">i")
_HEAD = struct.Struct(">ii")


def sync_of(name: str) -> bytes:
    """Return the 16 bytes of a file's sync marker."""
    return hashlib.md5(name.encode(), usedforsecurity=False).digest()


def sequence_header(name: str) -> bytes:
    """Return what a file of this name begins with."""
    return b"SEQ\x06" + text(_KEY_CLASS) + text(_VALUE_CLASS) + b"\x00\x00" + _I32.pack(0) + sync_of(name)


def sync_mark(name: str) -> bytes:
    """Return the marker that may stand before a record."""
    return _I32.pack(-1) + sync_of(name)


def sequence_record(key: str, value: bytes) -> bytes:
    """Return one record."""
    packed = text(key)
    return _HEAD.pack(len(packed) + 4 + len(value), len(packed)) + packed + _I32.pack(len(value)) + value


def text(value: str) -> bytes:
    """Return text as Text writes it."""
    raw = value.encode("utf-8", "replace")
    return variable(len(raw)) + raw


def variable(number: int) -> bytes:
    """Return a number of 0 or more as WritableUtils.writeVLong writes it."""
    if number <= 127:
        return bytes((number,))
    raw = number.to_bytes((number.bit_length() + 7) // 8, "big")
    # -113 for one byte that follows, -114 for two, ...
    return bytes(((-112 - len(raw)) & 0xFF,)) + raw


# Parquet by pyarrow: topic, qid, offset, key, tag, stored and born (ms, UTC), properties, body.

SCHEMA = pyarrow.schema(
    [
        pyarrow.field("topic", pyarrow.string(), nullable=False),
        pyarrow.field("qid", pyarrow.string(), nullable=False),
        pyarrow.field("offset", pyarrow.int64(), nullable=False),
        pyarrow.field("key", pyarrow.string()),
        pyarrow.field("tag", pyarrow.string()),
        pyarrow.field("stored", pyarrow.timestamp("ms", tz="UTC"), nullable=False),
        pyarrow.field("born", pyarrow.timestamp("ms", tz="UTC"), nullable=False),
        pyarrow.field("properties", pyarrow.map_(pyarrow.string(), pyarrow.string())),
        pyarrow.field("body", pyarrow.binary()),
    ]
)


def check(row: tuple[Any, ...]) -> None:
    """Raise what keeps one row out of a file: pyarrow's errors, OverflowError, UnicodeEncodeError."""
    for field, value in zip(SCHEMA, row, strict=True):
        _array(field, (value,))


def parquet(rows: list[tuple[Any, ...]]) -> bytes:
    """Return a file with these rows, in the order of `SCHEMA`'s fields."""
    columns = zip(*rows, strict=True)
    arrays = [_array(field, column) for field, column in zip(SCHEMA, columns, strict=True)]
    sink = pyarrow.BufferOutputStream()
    write: Any = pyarrow.parquet.write_table
    write(pyarrow.Table.from_arrays(arrays, schema=SCHEMA), sink, compression="zstd")
    return bytes(sink.getvalue())


def _array(field: Any, column: tuple[Any, ...]) -> Any:
    values = [list(each.items()) for each in column] if field.name == "properties" else list(column)
    return pyarrow.array(values, type=field.type)


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

    def begin(self, name: str) -> bytes:
        """Return what a file begins with."""

    def mark(self, name: str, at: int) -> bytes:
        """Return what precedes the records of one write that begins at byte `at`."""

    def whole(self, records: list[Any]) -> bytes:
        """Return a file; in a thread, where it may take its time."""

    def check(self, record: Any) -> None:
        """Raise what keeps one record out of a file, where that is known only there."""


class _PlainFormat:
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


class JsonLines(_PlainFormat):
    """One JSON object per line: the message with what is known of it, or its body alone."""

    suffix = ".jsonl"

    def __init__(self, *, bodies_alone: bool, is_intact: bool) -> None:
        self._bodies_alone = bodies_alone
        self._is_intact = is_intact

    def record(self, job: Job) -> bytes:
        """Return the line of a message."""
        body = b"null" if is_tombstone(job) else body_of(job.data, job.body, is_intact=self._is_intact)
        raw = json_line(body)
        if self._bodies_alone:
            if raw is None:
                raise Unprocessable("body is not JSON")
            return bytes(raw) + b"\n"
        message = job.message
        line: dict[str, Any] = {
            "topic": job.topic,
            "qid": job.qid,
            "offset": job.offset,
            "key": _clean(message.key),
            "tag": _clean(message.tag),
            "storedMs": message.stored_ms,
            "bornMs": message.born_ms,
            "properties": {_clean(name): _clean(value) for name, value in message.properties.items()},
        }
        if raw is not None:
            line["body"] = raw
        else:
            try:
                line["body"] = body.decode()
            except UnicodeDecodeError:
                line["bodyBase64"] = base64.b64encode(body).decode()
        return json_of(line) + b"\n"


def _clean(text: str | None) -> str | None:
    """Return a text as JSON can hold it: bytes that were not UTF-8 as escapes."""
    if text is None or text.isascii():
        return text
    return text.encode("utf-8", "backslashreplace").decode()


class TextLines(_PlainFormat):
    r"""A body per line. A line feed in it is written \n, a carriage return \r, a backslash \\; a delete is \N (W61)."""

    suffix = ".text"

    def __init__(self, *, is_intact: bool) -> None:
        self._is_intact = is_intact

    def record(self, job: Job) -> bytes:
        """Return the line of a message."""
        if is_tombstone(job):
            return b"\\N\n"
        raw = body_of(job.data, job.body, is_intact=self._is_intact)
        if b"\\" in raw or b"\n" in raw or b"\r" in raw:
            raw = raw.replace(b"\\", b"\\\\").replace(b"\n", b"\\n").replace(b"\r", b"\\r")
        return raw + b"\n"


class SequenceRecords:
    """Hadoop's SequenceFile: the message's key, empty where it has none, and its body."""

    suffix = ".seq"
    grows = True

    def __init__(self, *, is_intact: bool) -> None:
        self._is_intact = is_intact

    def record(self, job: Job) -> bytes:
        """Return the record of a message; that of a delete has an empty value."""
        if is_tombstone(job):
            return sequence_record(job.message.key or "", b"")
        return sequence_record(job.message.key or "", body_of(job.data, job.body, is_intact=self._is_intact))

    def begin(self, name: str) -> bytes:
        """Return the header."""
        return sequence_header(name)

    def mark(self, name: str, at: int) -> bytes:
        """Return a sync marker."""
        return sync_mark(name)

    def whole(self, records: list[bytes]) -> bytes:
        raise AssertionError("a SequenceFile grows")

    def check(self, record: bytes) -> None:
        """Nothing: it is bytes already."""


class ParquetRows:
    """A row per message; see `actions.sinks.files.formats`."""

    suffix = ".parquet"
    grows = False

    def __init__(self, *, is_intact: bool) -> None:
        self._is_intact = is_intact

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
            None if is_tombstone(job) else body_of(job.data, job.body, is_intact=self._is_intact),
        )

    def begin(self, name: str) -> bytes:
        """Nothing."""
        return b""

    def mark(self, name: str, at: int) -> bytes:
        """Nothing."""
        return b""

    def whole(self, records: list[tuple[Any, ...]]) -> bytes:
        """Return the file."""
        return parquet(records)

    def check(self, record: tuple[Any, ...]) -> None:
        """Try its row alone."""
        check(record)


def format_of(name: str, *, bodies_alone: bool, is_intact: bool) -> Format:
    """Return a form by its name in the options; `is_intact` as in `actions.transform.exact_json.body_of`."""
    if name == "json":
        return JsonLines(bodies_alone=bodies_alone, is_intact=is_intact)
    if name == "text":
        return TextLines(is_intact=is_intact)
    if name == "sequence":
        return SequenceRecords(is_intact=is_intact)
    assert name == "parquet", "the options know no other"
    return ParquetRows(is_intact=is_intact)
