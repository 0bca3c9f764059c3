"""The session that jobs run in."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.conftest import need_module

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_settings_follow_the_options() -> None:
    """And settings of one's own win."""
    need_module("pyspark")
    from lag.spark.session import SessionOptions, settings_of

    found = settings_of(
        SessionOptions(master="local[3]", cores=3, ui=False, settings={"spark.sql.session.timeZone": "Asia/Tokyo"})
    )
    assert found["spark.master"] == "local[3]"
    assert found["spark.sql.shuffle.partitions"] == "3"
    assert found["spark.ui.enabled"] == "false"
    assert found["spark.sql.session.timeZone"] == "Asia/Tokyo"
    assert (
        not {"spark.master", "spark.sql.shuffle.partitions", "spark.driver.extraJavaOptions"}
        & settings_of(SessionOptions()).keys()
    )
    assert "spark.sql.codegen.maxFields" in found
    with pytest.raises(ValueError, match="needs at least one core, got 0"):
        settings_of(SessionOptions(cores=0))


def test_files_of_samples_are_narrow_enough_to_be_read_by_columns() -> None:
    """Above that width Spark reads Parquet row by row."""
    need_module("pyspark")
    from lag.samples import SAMPLE_FIELDS
    from lag.spark.session import FIELDS_MAX
    from lag.spark.sources.exported import _NAMES

    assert len(SAMPLE_FIELDS) < len(_NAMES["queues"]) < FIELDS_MAX


def test_session_is_set_up_for_jobs(spark: SparkSession) -> None:
    """UTC, adaptive plans, filters handed down, state in RocksDB."""
    assert spark.conf.get("spark.sql.session.timeZone") == "UTC"
    assert spark.conf.get("spark.sql.adaptive.enabled") == "true"
    assert spark.conf.get("spark.sql.python.filterPushdown.enabled") == "true"
    assert "RocksDB" in str(spark.conf.get("spark.sql.streaming.stateStore.providerClass"))
    assert spark.conf.get("spark.sql.shuffle.partitions") == "2"


def test_workers_run_this_python(spark: SparkSession) -> None:
    """Whatever `python3` the path has."""
    found = spark.sparkContext.parallelize([0], 1).map(lambda _: sys.executable).collect()
    assert found == [sys.executable]


def test_log_goes_to_a_file(spark: SparkSession) -> None:
    """The console is for the job's own words."""
    options = str(spark.conf.get("spark.driver.extraJavaOptions"))
    log = Path(options.partition("configurationFile=")[2].split()[0].removesuffix(".properties"))
    logger = spark.sparkContext._jvm.org.apache.logging.log4j.LogManager.getLogger("tests")  # type: ignore[union-attr]
    logger.warn("a line for the file")
    assert "a line for the file" in log.read_text()
