"""`pyddmq.spark`: what programs import of Spark's sources, and the zip that executors need."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

from tests.conftest import need_module


def run(*arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run the module as a program."""
    need_module("pyspark", "pip install 'pyddmq[server,spark]'")
    command = [sys.executable, "-m", "pyddmq.spark", *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=60, check=False)


def test_zip_is_written_beside_modules_with_the_names_of_rooms(tmp_path: Path) -> None:
    """A program's own `lag.py` is neither run nor shipped."""
    (tmp_path / "lag.py").write_text("raise SystemExit('the wrong lag')\n")
    done = run("jobs.zip", folder=tmp_path)
    assert not done.returncode, done.stderr
    names = zipfile.ZipFile(tmp_path / "jobs.zip").namelist()
    assert "pyddmq_spark/lag/spark/sources/journal.py" in names
    assert {name.partition("/")[0] for name in names} == {"pyddmq_spark"}


def test_file_must_be_named(tmp_path: Path) -> None:
    """A sentence, and nothing is written."""
    done = run(folder=tmp_path)
    assert done.returncode == 1
    assert "FILE.zip" in done.stderr
    assert not list(tmp_path.iterdir())
