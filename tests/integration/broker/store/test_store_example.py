"""The examples of the documentation, on the real disk."""

from __future__ import annotations

import asyncio
import runpy
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[4] / "examples"
EXAMPLE = EXAMPLES / "embedded_broker.py"


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


def test_encoded_batch_example_stores_one_batch_and_refuses_another(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It runs as it stands; the members of its batch are adjacent, and the refusal names a member."""
    main = runpy.run_path(str(EXAMPLES / "encoded_batch.py"))["main"]
    assert main(str(tmp_path / "store")) == 3
    lines = capsys.readouterr().out.splitlines()
    assert [line.partition(": ")[0] for line in lines if line.startswith("queue ")] == [
        "queue 1 offset 0",
        "queue 1 offset 1",
        "queue 1 offset 2",
    ]
    assert lines[-1].startswith("nothing of it is stored: member 4 of the batch: 1 bytes are left")


def test_orderly_consumer_example_keeps_each_riders_order(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It runs as it stands: A's steps stay in order through two failures, B is not held up, nothing is done twice."""
    main = runpy.run_path(str(EXAMPLES / "orderly_consumer.py"))["main"]
    done = asyncio.run(main(str(tmp_path / "store")))
    assert [step for step in done if step[0] == "A"] == ["A call", "A accept", "A pay"]
    assert [step for step in done if step[0] == "B"] == ["B call", "B accept", "B pay"]
    assert done.index("B pay") < done.index("A accept")
    assert capsys.readouterr().out.count("A accept: failed") == 2
