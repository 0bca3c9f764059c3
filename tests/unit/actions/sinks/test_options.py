"""Options of the sinks of files and of HBase: each wrong one says what is right."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import BaseModel, ValidationError

from actions.sinks.files.options import FileOptions, HdfsOptions
from actions.sinks.hbase.options import HBaseOptions, check_column

HDFS = {"urls": ["http://h:9870"], "rootPath": "/x", "userName": "u"}


@pytest.mark.parametrize(
    ("model", "options", "text"),
    [
        (FileOptions, {"url": "here"}, "neither an absolute path nor a URL"),
        (FileOptions, {"url": "http://h/x"}, "written by the action Hdfs"),
        (FileOptions, {"url": "/x", "path": "../y"}, "leads out of its root"),
        (FileOptions, {"url": "/x", "path": "${day}"}, "is unknown; use"),
        (FileOptions, {"url": "/x", "path": "${topic"}, "has an incomplete"),
        (FileOptions, {"url": "/x", "timeZone": "Mars"}, "not a time zone"),
        (FileOptions, {"url": "/x", "region": "r"}, "only for s3://"),
        (FileOptions, {"url": "s3://b", "accessKey": "a"}, "belong together"),
        (FileOptions, {"url": "/x", "format": "parquet", "rotateSeconds": 61}, "at most 60"),
        (FileOptions, {"url": "s3://b", "rotateSeconds": 61}, "at most 60"),
        (HdfsOptions, {**HDFS, "urls": ["h:9870"]}, "not a valid address of WebHDFS"),
        (HdfsOptions, {**HDFS, "password": "p"}, "WebHDFS has no password"),
        (HdfsOptions, {**HDFS, "reExpTable": "t"}, "DDMQ never used"),
        (HdfsOptions, {**HDFS, "rootPath": "x"}, "pattern"),
        (HBaseOptions, {"hosts": ["h:1"], "tables": [{"table": "t", "row": "r"}]}, "put needs columns"),
        (HBaseOptions, {"hosts": ["h:1"], "tables": [{"table": "t", "row": "${x}", "columns": {}}]}, "is unknown; use"),
    ],
)
def test_wrong_options_say_what_is_right(model: type[BaseModel], options: dict[str, Any], text: str) -> None:
    """Each is an error of the configuration."""
    with pytest.raises(ValidationError) as found:
        model.model_validate(options)
    assert text in str(found.value)


def test_ddmqs_spellings_are_taken() -> None:
    """`SequenceFile`, `Text`, and fields that were never used, as long as they are empty."""
    options = HdfsOptions.model_validate({**HDFS, "fileType": "SequenceFile", "reExpTable": "", "maxFileCount": 5})
    assert options.file_type == "sequence"
    assert FileOptions.model_validate({"url": "s3://b", "rotateSeconds": 60}).is_whole


def test_column_is_family_and_qualifier() -> None:
    """As HBase's shell writes them."""
    assert check_column("d:a:b") == "d:a:b"
    with pytest.raises(ValueError, match="family:qualifier"):
        check_column("d")
