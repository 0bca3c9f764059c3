"""The report on a Spark cluster, as docs/lag-cluster.md has it: executors have one zip and no more."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from broker.runtime.disk import RealDisk
from lag.export.export import export
from lag.export.place import ExportPlace
from lag.journal.reader import JournalQuery
from lag.spark import package
from tests.conftest import need_module, need_program
from tests.spark.kills.campaign import written_changes
from tests.spark.test_jobs_report import EVERY_MS, SNAPSHOTS, START_MS, write_story

PAGE: Final = Path(__file__).parents[2] / "docs" / "lag-cluster.md"
MASTER: Final = "local-cluster[2,1,1024]"
"""Two workers of a core and a gigabyte each, as processes of their own."""
SECONDS_MAX: Final = 600


def program_of_the_page() -> str:
    """Return the page's report.py."""
    blocks: list[str] = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    return next(block for block in blocks if "import main" in block)


@pytest.fixture
def submit(tmp_path: Path) -> Path:
    """Write what a cluster gets, and modules with the rooms' names that must not be met; return the folder."""
    need_program("java", "apt install openjdk-17-jre-headless")
    spark = need_module("pyspark", "pip install 'pyddmq[spark]'")
    # Workers keep what executors write below Spark's own folder: so there is one of our own.
    (tmp_path / "spark").mkdir()
    for each in Path(str(spark.__file__)).parent.iterdir():
        if each.name != "work":
            (tmp_path / "spark" / each.name).symlink_to(each)
    package.write_package(str(tmp_path / "pyddmq_spark.zip"))
    (tmp_path / "report.py").write_text(program_of_the_page())
    (tmp_path / "others").mkdir()
    for name in package.ROOMS:
        (tmp_path / "others" / f"{name}.py").write_text("raise AssertionError('a module of the cluster\\'s users')")
    return tmp_path


def run(folder: Path, *arguments: str, program: list[str]) -> subprocess.CompletedProcess[str]:
    """Run a program in the folder, without the rooms' folder on the path."""
    environment = os.environ | {
        "PYTHONPATH": str(folder / "others"),
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_HOME": str(folder / "spark"),
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    return subprocess.run(
        [*program, *arguments], cwd=folder, env=environment, capture_output=True, text=True, check=False,
        timeout=SECONDS_MAX,
    )  # fmt: skip


def test_zip_has_the_whole_program(submit: Path) -> None:
    """The short form: it starts from the zip alone, and says what is missing among its options."""
    ended = run(
        submit, "--from", "2024-05-06", "--to", "2024-05-07",
        program=[sys.executable, "-c", f"import sys; sys.path.insert(0, 'pyddmq_spark.zip')\n{program_of_the_page()}"],
    )  # fmt: skip
    assert (ended.returncode, ended.stdout) == (2, "")
    assert ended.stderr == "pyddmq lag report: samples come from journals or from exported files: " + (
        "give --journal or --exported\n"
    )


def test_zip_compacts(submit: Path) -> None:
    """The job of that name, which needs no session: it says what is wrong, and what it did."""
    need_module("pyarrow", "pip install 'pyddmq[files]'")
    place = ExportPlace(str(submit / "many"))
    write_story(f"{submit}/node", "node")
    for until in (40, 80, SNAPSHOTS):
        export(RealDisk(read_only=True), f"{submit}/node", place, JournalQuery(until_ms=START_MS + until * EVERY_MS))
    program = [sys.executable, "-c", f"import sys; sys.path.insert(0, 'pyddmq_spark.zip')\n{program_of_the_page()}"]
    ended = run(submit, "compact", place.url, program=program)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert "0 deleted" in ended.stdout
    assert not ended.stdout.startswith("0 files made")
    ended = run(submit, "compact", f"{submit}/none", program=program)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert ended.stderr.endswith("none has no exported files\n")


@pytest.mark.long
def test_three_nodes_are_one_report(submit: Path) -> None:
    """From their journals, and from what they exported to one place; both are the same page."""
    need_module("pyarrow", "pip install 'pyddmq[files]'")
    place = ExportPlace(str(submit / "exported"))
    nodes = [f"node-{number}" for number in range(3)]
    for node in nodes:
        write_story(f"{submit}/{node}", node)
        export(RealDisk(read_only=True), f"{submit}/{node}", place)
    window = ("--from", str(START_MS), "--to", str(START_MS + SNAPSHOTS * EVERY_MS), "--format", "markdown")
    pages = []
    for source in (("--journal", ",".join(f"{submit}/{node}" for node in nodes)), ("--exported", place.url)):
        spark_submit = [str(submit / "spark" / "bin" / "spark-submit"), "--master", MASTER]
        ended = run(
            submit, *source, *window, "--out", "report.md",
            program=[*spark_submit, "--py-files", "pyddmq_spark.zip", "report.py"],
        )  # fmt: skip
        assert ended.returncode == 0, ended.stderr
        page = (submit / "report.md").read_text(encoding="utf-8")
        pages.append(re.sub(r"made [\d: -]+ UTC|^- .*: nothing was recorded.*$", "", page, flags=re.MULTILINE))
    assert len(list((submit / "spark" / "work").glob("app-*/*"))) >= 2, "executors had folders of their own"
    assert pages[0] == pages[1]
    for text in (
        "- **BLOCKED** poisoned: poison message. Offset 3000 was tried 179 times",
        "- **STOP** stopped: no consumer. No client holds a message or pulls; ",
        f"| stopped | STOP | {6 * (SNAPSHOTS - 61) * 100:,} |".replace(",", "\u202f"),
        "| well | OK |",
    ):
        assert text in pages[0]


@pytest.mark.long
def test_watch_writes_changes_of_three_nodes_once(submit: Path) -> None:
    """The page's program with `watch` as its first word: over two runs; what Spark says is in the log."""
    nodes = [f"node-{number}" for number in range(3)]
    for number, node in enumerate(nodes):
        write_story(f"{submit}/{node}", node, 7 * number)
    for _ in range(2):
        spark_submit = [str(submit / "spark" / "bin" / "spark-submit"), "--master", MASTER]
        ended = run(
            submit, "watch", "--journal", ",".join(f"{submit}/{node}" for node in nodes), "--checkpoint",
            f"{submit}/checkpoint", "--format", "json", "--path", f"{submit}/changes", "--once", "--silence", "1e9",
            "--log", "watch.log",
            program=[*spark_submit, "--py-files", "pyddmq_spark.zip", "report.py"],
        )  # fmt: skip
        assert ended.returncode == 0, ended.stderr
        # A submitted program's words come out of the JVM.
        assert ended.stdout == "watching; Spark's log is watch.log\n"
        assert "MicroBatchExecution" not in ended.stderr, "Spark's words go to the log once there is a session"
    lines = written_changes(submit / "changes")
    assert len({line["key"] for line in lines}) == len(lines)
    found = {(line["node"], line["group"], line["status"]) for line in lines}
    assert {(node, *each) for node in nodes for each in (("poisoned", "BLOCKED"), ("stopped", "STOP"))} <= found
    assert "ResolveWriteToStream" in (submit / "watch.log").read_text()
