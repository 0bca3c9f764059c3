"""The example of the documentation, on the real disk."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parents[2] / "examples" / "embedded_broker.py"


def test_embedded_broker_example_keeps_its_messages(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It runs as it stands; a second run finds what the first one stored, all of one key in one queue and in order."""
    main = runpy.run_path(str(EXAMPLE))["main"]
    assert main(str(tmp_path / "store")) == 3
    assert main(str(tmp_path / "store")) == 6
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("queue ")]
    assert [line.split(": ")[1].split(" {")[0] for line in lines[-6:]] == [
        "case-7 received",
        "case-7 checked",
        "case-7 granted",
    ] * 2
    assert len({line.split()[1] for line in lines}) == 1
