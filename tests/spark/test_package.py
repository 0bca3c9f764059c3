"""The zip that a cluster gets."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from lag.spark import package

PROGRAM = """
import sys
class Refusing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("lag", "broker", "structlog", "msgspec", "pydantic", "yaml", "isal"):
            raise ModuleNotFoundError(f"there is no {name} on a cluster")
sys.meta_path.insert(0, Refusing())
sys.path.insert(0, sys.argv[1])
import pyddmq_spark.lag.spark.sources.store_files
import pyddmq_spark.lag.journal.reader
import pyddmq_spark.lag.spark.sources
import pyddmq_spark.lag.spark.jobs.watch
print("all there")
"""


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write the zip."""
    made = tmp_path_factory.mktemp("package") / "p.zip"
    package.write_package(str(made))
    return made


def test_package_has_one_name_and_needs_nothing_of_ours(path: Path, tmp_path: Path) -> None:
    """Neither an installed pyddmq nor what its server needs, in a folder with modules of the rooms' names."""
    for name in ("lag.py", "broker.py"):
        (tmp_path / name).write_text("raise AssertionError('shadowed')")
    pytest.importorskip("pyspark")
    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(path)], capture_output=True, text=True, check=False, cwd=tmp_path
    )

    assert ended.stderr == ""
    assert ended.stdout == "all there\n"
    with zipfile.ZipFile(path) as made:
        assert {name.partition("/")[0] for name in made.namelist()} == {package.PACKAGE}
        assert "pyddmq_spark/lag/report/page/page.css" in made.namelist()


def test_same_rooms_give_the_same_bytes(path: Path, tmp_path: Path) -> None:
    """So that a cluster's cache knows it again."""
    package.write_package(str(tmp_path / "again.zip"))
    assert (tmp_path / "again.zip").read_bytes() == path.read_bytes()


def test_imports_and_names_of_compiled_modules_are_rewritten() -> None:
    """Nothing else is: a text that names a room stays."""
    text = (
        "from lag.samples import A\n    from broker.format import record\nfrom lagoon import b\n"
        'x = accelerated("broker.index.rows_accelerator", "enter", y)\nz = "lag.samples"\n'
    )
    assert package.rewritten(text) == (
        "from pyddmq_spark.lag.samples import A\n    from pyddmq_spark.broker.format import record\n"
        "from lagoon import b\n"
        'x = accelerated("pyddmq_spark.broker.index.rows_accelerator", "enter", y)\nz = "lag.samples"\n'
    )
