"""SIGKILL of node, streaming jobs and exports while all run: nothing twice, nothing lost."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.conftest import need_module, need_program
from tests.spark.kills.campaign import BOTH, DRIVER, EXPORT, JVM, NODE, Account, Campaign

LONG_KILLS = {NODE: 30, EXPORT: 12, BOTH: 5, JVM: 3, DRIVER: 2}
"""Of the long form, in an order by chance."""


@pytest.fixture(autouse=True)
def _needed() -> None:
    need_program("java", "apt install openjdk-17-jre-headless")
    need_module("pyspark", "pip install 'pyddmq[spark]'")
    need_module("pyarrow", "pip install 'pyddmq[files]'")


def test_few_kills_lose_and_double_nothing(tmp_path: Path) -> None:
    """The short form: both jobs in one process, that is killed once."""
    account = Campaign(tmp_path, seed=1, kills=(NODE, BOTH, EXPORT), pauses=3, step=300).run()
    print(f"\n{account.line()}")
    assert account.messages > 500


@pytest.mark.long
def test_many_kills_lose_and_double_nothing(tmp_path: Path) -> None:
    """The jobs apart, each killed at any moment, whole or in part."""
    kills = [whom for whom, count in LONG_KILLS.items() for _ in range(count)]
    random.Random(7).shuffle(kills)
    account: Account = Campaign(tmp_path, seed=7, kills=kills, pauses=50, step=500, apart=True).run()
    print(f"\n{account.line()}")
    assert account.batches > len(kills) // 2
