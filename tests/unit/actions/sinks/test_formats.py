"""The forms of files, byte by byte."""

from __future__ import annotations

import json

import pytest

from actions.sinks.files.formats import format_of, sequence_header, sequence_record, variable
from actions.transform.exact_json import decode_exact
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
    head = sequence_header("name")
    assert head.startswith(b"SEQ\x06\x19org.apache.hadoop.io.Text\x22org.apache.hadoop.io.BytesWritable\0\0\0\0\0\0")
    assert len(head) == 4 + 26 + 35 + 2 + 4 + 16
    assert sequence_record("k", b"body").hex() == "0000000a" + "00000002" + "016b" + "00000004" + b"body".hex()
    form = format_of("sequence", bodies_alone=False, is_intact=False)
    assert form.mark("name", 100) == b"\xff\xff\xff\xff" + head[-16:]
    assert form.record(FakeJob(1, b"body", key="k")) == sequence_record("k", b"body")


NUMBERS = b'{"a": 1.10, "b": 1e400, "a": 0.12345678901234567890, "c": 10000000000000000000001}'


@pytest.mark.parametrize(
    ("body", "field", "written"),
    [
        (b'{"a": 1}', "body", b'{"a": 1}'),
        (b'\n{"a":\r\n1}', "body", b' {"a":  1}'),
        (NUMBERS, "body", NUMBERS),
        (b'{"a": "\\ud800", "a": "\\u00e9"}', "body", b'{"a": "\\ud800", "a": "\\u00e9"}'),
        (b"plain", "body", b'"plain"'),
        (b"NaN", "body", b'"NaN"'),
        (b'{"a": Infinity}', "body", b'"{\\"a\\": Infinity}"'),
        (b"[" * 5000, "body", b'"' + b"[" * 5000 + b'"'),
        (b"\xff", "bodyBase64", b'"/w=="'),
        (b"\xef\xbb\xbf{}", "body", '"\ufeff{}"'.encode()),
    ],
)
def test_body_stands_as_the_json_that_it_is_else_as_text_or_base64(body: bytes, field: str, written: bytes) -> None:
    """Whatever the bytes are, a line of JSON holds them: numbers, escapes and repeated names as they came."""
    line = format_of("json", bodies_alone=False, is_intact=False).record(FakeJob(1, body))
    assert line.endswith(b'"%b":%b}\n' % (field.encode(), written))
    assert line.count(b"\n") == 1
    json.loads(line)


def test_names_and_values_that_are_not_utf8_are_escaped() -> None:
    """One message of such a property is written like any other."""
    line = format_of("json", bodies_alone=False, is_intact=False).record(
        FakeJob(1, key="k\ud800", properties={"n\udcff": "v\udcff"})
    )
    found = json.loads(line.decode())
    assert found["key"] == "k\\ud800"
    assert found["properties"] == {"n\\udcff": "v\\udcff"}


def test_body_alone_is_one_line_or_unprocessable() -> None:
    """`content: body` writes the JSON on one line, whatever line feeds it had."""
    form = format_of("json", bodies_alone=True, is_intact=False)
    assert form.record(FakeJob(1, b'{\n "a": "x\\ny"}')) == b'{  "a": "x\\ny"}\n'
    with pytest.raises(Unprocessable, match="not JSON"):
        form.record(FakeJob(1, b"plain"))


@pytest.mark.parametrize("name", ["json", "text", "parquet"])
def test_data_that_an_action_made_is_written_and_what_none_changed_is_as_it_came(name: str) -> None:
    """Also what is no bytes any more; numbers keep their text."""
    job = FakeJob(1, NUMBERS)
    job.data = {"a": [decode_exact(b"1.10")]}
    for is_intact, wanted in ((False, b'{"a":[1.10]}'), (True, NUMBERS)):
        found = format_of(name, bodies_alone=False, is_intact=is_intact).record(job)
        assert wanted in (found[-1] if name == "parquet" else found)
