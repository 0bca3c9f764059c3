"""Giving a session our data sources, from the package that its executors have."""

from __future__ import annotations

import os
import tempfile
from types import ModuleType

from pyspark.sql import SparkSession

from lag.spark import package


def ship(spark: SparkSession) -> ModuleType:
    """Register the data sources with a session, and return their module.

    Where this runs from the zip (`spark-submit --py-files`), executors have it. Else the zip is written and added, once
    in a process: the next session gets the same.
    """
    if __name__.startswith(package.PACKAGE):
        from lag.spark import sources

        _let_streams_find(spark, package.loaded_from())
        sources.register(spark)
        return sources
    path = package.loaded_from()
    if path is None:
        path = os.path.join(tempfile.mkdtemp(prefix="pyddmq-spark-"), f"{package.PACKAGE}.zip")
        package.write_package(path)
    spark.sparkContext.addPyFile(path)
    _let_streams_find(spark, path)
    shipped = package.load(path, "lag.spark.sources")
    shipped.register(spark)
    return shipped


def _let_streams_find(spark: SparkSession, path: str | None) -> None:
    """Have the process that plans a stream find the zip: Spark gives it a folder of added files that is not there.

    It runs beside the driver. Executors have what `addPyFile` brought; a path that they do not have does no harm.
    """
    environment = spark.sparkContext.environment
    known = [each for each in environment.get("PYTHONPATH", "").split(os.pathsep) if each]
    if path is not None and path not in known:
        environment["PYTHONPATH"] = os.pathsep.join([*known, path])
