"""Four small models, judged by Porcupine from the same journals; a program in Go."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

GO = "/usr/local/go/bin"
SECONDS = 20
"""For each model."""


def build(folder: Path) -> Path:
    """Return the program, or skip: Go and its modules are in no image of continuous integration (`Makefile`)."""
    go = shutil.which("go", path=f"{os.environ['PATH']}:{GO}")
    if go is None:
        pytest.skip("go is missing (https://go.dev/dl, 1.22 or newer)")
    here = Path(__file__).parent
    fetched = subprocess.run([go, "mod", "download"], cwd=here, capture_output=True, text=True, timeout=60, check=False)
    if fetched.returncode:
        pytest.skip(f"the module proxy of Go has no Porcupine for us: {fetched.stderr.strip()[-200:]}")
    program = folder / "judge"
    subprocess.run([go, "build", "-mod=readonly", "-o", program, "."], cwd=here, check=True, timeout=600)
    return program


def answers(program: Path, journal: Path) -> dict[str, dict[str, object]]:
    """Return what each model says of a journal."""
    ended = subprocess.run(
        [program, "-seconds", str(SECONDS), journal], capture_output=True, text=True, timeout=8 * SECONDS, check=False
    )
    assert ended.returncode in (0, 1), ended.stderr
    lines = [json.loads(line) for line in ended.stdout.splitlines()]
    assert ended.returncode == any(each["answer"] == "broken" for each in lines)
    return {each.pop("model"): each for each in lines}
