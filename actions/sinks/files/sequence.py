"""Hadoop's SequenceFile, version 6, uncompressed: keys of class Text, values of class BytesWritable.

    SEQ 0x06 | Text key class | Text value class | compressed 0 | by block 0 | metadata pairs, i32 0 | sync[16]
    record:  length of key and value, i32 | length of the key, i32 | key | value
    sync:    -1, i32 | sync[16]

Text is a variable-length number of bytes and UTF-8; BytesWritable is an i32 and the bytes; all numbers are big-endian.
A sync marker may stand before any record: a reader that begins in the middle looks for one. It comes from the name of
the file here, so that a repeat writes the same bytes. (org.apache.hadoop.io.SequenceFile, WritableUtils.writeVLong.)
"""

from __future__ import annotations

import hashlib
import struct

_KEY_CLASS = "org.apache.hadoop.io.Text"
_VALUE_CLASS = "org.apache.hadoop.io.BytesWritable"
_I32 = struct.Struct(">i")
_HEAD = struct.Struct(">ii")


def sync_of(name: str) -> bytes:
    """Return the 16 bytes of a file's sync marker."""
    return hashlib.md5(name.encode(), usedforsecurity=False).digest()


def header(name: str) -> bytes:
    """Return what a file of this name begins with."""
    return b"SEQ\x06" + text(_KEY_CLASS) + text(_VALUE_CLASS) + b"\x00\x00" + _I32.pack(0) + sync_of(name)


def sync_mark(name: str) -> bytes:
    """Return the marker that may stand before a record."""
    return _I32.pack(-1) + sync_of(name)


def record(key: str, value: bytes) -> bytes:
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
