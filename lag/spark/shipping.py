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

        sources.register(spark)
        return sources
    path = package.loaded_from()
    if path is None:
        path = os.path.join(tempfile.mkdtemp(prefix="pyddmq-spark-"), f"{package.PACKAGE}.zip")
        package.write_package(path)
    spark.sparkContext.addPyFile(path)
    shipped = package.load(path, "lag.spark.sources")
    shipped.register(spark)
    return shipped
