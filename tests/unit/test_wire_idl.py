"""The interface definitions are found in a checkout and in an installed distribution."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from proxy import idl

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("name", idl.NAMES)
def test_idl_is_loaded_once(name: str) -> None:
    """The file is there, and loading it again gives the same module."""
    assert idl.path(name).name == f"{name}.thrift"
    assert idl.load(name) is idl.load(name)


def test_idl_that_is_missing_is_said_with_both_places() -> None:
    """A damaged installation is told from a mistake of the caller by a sentence."""
    with pytest.raises(idl.IdlMissing, match="reinstall"):
        idl.path("nothing")


def test_idl_travels_where_the_installed_package_looks(tmp_path: Path) -> None:
    """The wheel's rule for each file names the place that the loader reads, and a copy laid out so works alone."""
    rules = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]
    package = tmp_path / "proxy"
    package.mkdir()
    (package / "__init__.py").touch()
    shutil.copy(ROOT / "proxy" / "idl.py", package)
    for name in idl.NAMES:
        target = tmp_path / rules["force-include"][f"thrift/{name}.thrift"]
        target.parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / "thrift" / f"{name}.thrift", target)
    code = "from proxy import idl; print(idl.__file__, idl.path('consumer'), idl.load('producer').Result)"
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert str(tmp_path / "proxy" / "idl.py") in done.stdout
    assert str(package / "idl_files" / "consumer.thrift") in done.stdout
