"""The benchmark of messages from files still works: small, its figures looked at and its speed not."""

from __future__ import annotations

from typing import Any

import pytest

from tests.conftest import need_module


def test_benchmark_reads_all_that_it_wrote(capsys: pytest.CaptureFixture[str]) -> None:
    """In each of its ways."""
    need_module("pyspark", "pip install 'pyddmq[spark]'")
    from bench import message_files

    bench: Any = message_files
    assert bench.main(["--messages", "600", "--bytes", "64"]) == 0
    lines = capsys.readouterr().out.splitlines()
    shown = [line for line in lines if line.endswith("of a core")]
    assert [int(line.partition(" rows")[0].split()[-1]) for line in shown] == [600] * len(bench.READINGS)
