"""The forms of files, byte by byte."""

from __future__ import annotations

import json

import pytest

from actions.sinks.files.formats import body_of, format_of, raw_body
from actions.sinks.files.sequence import header, record, variable
from pyddmq.actions import Unprocessable
from tests.unit.actions.sinks.surroundings import FakeJob


@pytest.mark.parametrize(
    ("number", "raw"), [(0, "00"), (127, "7f"), (128, "8f80"), (255, "8fff"), (256, "8e0100"), (70_000, "8d011170")]
)
def test_variable_numbers_are_hadoops(number: int, raw: str) -> None:
    """WritableUtils.writeVLong: one byte up to 127, else a byte that tells how many follow."""
    assert variable(number).hex() == raw


def test_sequence_file_has_the_header_and_records_of_version_6() -> None:
    """Classes, no compression, no metadata, a sync marker; then lengths, key and value."""
    head = header("name")
    assert head.startswith(b"SEQ\x06\x19org.apache.hadoop.io.Text\x22org.apache.hadoop.io.BytesWritable\0\0\0\0\0\0")
    assert len(head) == 4 + 26 + 35 + 2 + 4 + 16
    assert record("k", b"body").hex() == "0000000a" + "00000002" + "016b" + "00000004" + b"body".hex()
    form = format_of("sequence", bodies_alone=False)
    assert form.mark("name", 100) == b"\xff\xff\xff\xff" + head[-16:]
    assert form.record(FakeJob(1, b"body", key="k")) == record("k", b"body")


def test_bodies_stand_as_json_text_or_base64() -> None:
    """Whatever the bytes are, a line of JSON holds them."""
    assert body_of(b'{"a": 1}') == {"body": {"a": 1}}
    assert body_of(b"plain") == {"body": "plain"}
    assert body_of(b"NaN") == {"body": "NaN"}
    assert body_of(b"\xff") == {"bodyBase64": "/w=="}


def test_body_alone_is_one_line_or_unprocessable() -> None:
    """`content: body` writes the JSON on one line, whatever line feeds it had."""
    form = format_of("json", bodies_alone=True)
    assert form.record(FakeJob(1, b'{\n "a": "x\\ny"}')) == b'{"a":"x\\ny"}\n'
    with pytest.raises(Unprocessable, match="not JSON"):
        form.record(FakeJob(1, b"plain"))


def test_data_that_an_action_made_is_written() -> None:
    """Also what is no bytes any more."""
    job = FakeJob(1)
    job.data = {"a": [1]}
    assert raw_body(job) == b'{"a":[1]}'
    assert json.loads(format_of("json", bodies_alone=False).record(job))["body"] == {"a": [1]}
