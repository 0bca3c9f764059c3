"""`pyddmq lag report`, asked as its users ask it; what it reports is tests/spark's."""

from __future__ import annotations

from pathlib import Path

import pytest

from proxy.cli.app import run
from tests.integration.proxy.admin.test_cli_lag_export import data_directory


@pytest.mark.usefixtures("no_spark")
def test_missing_spark_is_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With what to install."""
    assert run(["lag", "report", "--journal", data_directory(tmp_path)]) == 8
    message = " ".join(capsys.readouterr().err.split())
    assert "runs on Spark, and there is no pyspark" in message
    assert "pip install 'pyddmq[server,spark]'" in message


@pytest.mark.parametrize(
    ("options", "code", "sentence"),
    [
        (["--journal", "/nowhere"], 11, "has no lag journal: give a data directory"),
        (["--journal", "x", "--exported", "y"], 2, "give --journal, or --exported"),
        (["--format", "pdf"], 2, "--format is 'pdf': it is one of html, markdown, json, csv, incidents-csv"),
        (["--since", "soon"], 2, "--since"),
        (["--since", "1h", "--until", "2h"], 2, "which is not behind its begin"),
    ],
)
def test_wrong_options_are_told_before_spark_starts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], options: list[str], code: int, sentence: str
) -> None:
    """In a sentence."""
    pytest.importorskip("pyspark")
    journal = [] if "--journal" in options else ["--journal", data_directory(tmp_path)]
    assert run(["lag", "report", *journal, *options]) == code
    assert sentence in " ".join(capsys.readouterr().err.split())
