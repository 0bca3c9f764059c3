"""One Spark session for all tests of Spark, in one worker.

Starting a session costs more than most tests that use it. Without Java the tests are skipped at a desk and fail in CI.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from tests.conftest import need_module, need_program

if TYPE_CHECKING:
    from types import ModuleType

    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """Return the session: two cores, two partitions, no page, its log in a file."""
    need_program("java", "apt install openjdk-17-jre-headless")
    need_module("pyspark", "pip install 'pyddmq[spark]'")
    from lag.spark.session import SessionOptions, session

    folder = tmp_path_factory.mktemp("spark")
    options = SessionOptions(
        name="tests",
        master="local[2]",
        cores=2,
        ui=False,
        log_file=str(folder / "spark.log"),
        settings={
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.local.dir": str(folder),
            "spark.sql.warehouse.dir": str(folder / "warehouse"),
            "spark.driver.memory": "1g",
            # Small data: compiling a plan costs more than running it.
            "spark.sql.codegen.wholeStage": "false",
            "spark.sql.codegen.factoryMode": "NO_CODEGEN",
            # Nor does code run for long enough to be compiled a second time: that and a collector with threads of its
            # own took half of all processor time, on cores that the other tests have to share.
            "spark.driver.extraJavaOptions": (
                f"-Dlog4j2.configurationFile={folder}/spark.log.properties -XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
            ),
        },
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made = session(options)
    yield made
    made.stop()


@pytest.fixture(scope="session")
def shipped(spark: SparkSession) -> ModuleType:
    """Give the session the zip that a cluster gets, and return its module of sources."""
    from lag.spark.shipping import ship

    return ship(spark)
