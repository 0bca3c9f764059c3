"""The programs of examples/: each runs as its first lines say, and its checks pass. Kafka's is run by tests/kafka."""

from __future__ import annotations

import runpy
import subprocess
import sys
from pathlib import Path

import pytest

from tests.acceptance.conftest import environment
from tests.patient import PATIENCE_SECONDS

EXAMPLES = Path(__file__).parents[2] / "examples"
HELPER = "running_node.py"
PROGRAMS = sorted(each.name for each in EXAMPLES.glob("*.py") if each.name not in {HELPER, "kafka_two_nodes.py"})


@pytest.mark.parametrize("name", PROGRAMS)
def test_example_passes_its_checks(name: str, tmp_path: Path) -> None:
    """It runs from another folder, without arguments, and ends with its verdict."""
    done = subprocess.run(
        [sys.executable, EXAMPLES / name],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        timeout=PATIENCE_SECONDS,
        env=environment(),
        check=False,
    )
    assert (done.returncode, done.stdout.splitlines()[-1:]) == (0, ["all checks passed"]), done.stdout + done.stderr


def test_failed_check_of_an_example_ends_with_exit_code_1(capsys: pytest.CaptureFixture[str]) -> None:
    """And names the check."""
    conclude = runpy.run_path(str(EXAMPLES / HELPER))["conclude"]
    with pytest.raises(SystemExit) as ended:
        conclude(["the order was wrong"])
    assert (ended.value.code, capsys.readouterr().out) == (1, "FAILED: the order was wrong\n")


def test_index_names_every_example() -> None:
    """In examples/README.md, each file once with a link."""
    index = (EXAMPLES / "README.md").read_text(encoding="utf-8")
    files = [each.name for each in EXAMPLES.iterdir() if each.is_file() and each.name not in {HELPER, "README.md"}]
    assert {name: index.count(f"({name})") for name in files} == dict.fromkeys(files, 1)
