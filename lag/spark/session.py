"""The Spark session that all jobs run in."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from pyspark import SparkConf, SparkContext
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

_ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"

_SUBMITTED = "PYSPARK_GATEWAY_PORT"
"""Set in the environment of a program that `spark-submit` runs."""

QUICK_JVM: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""Of a JVM with little to do: code is compiled once and quickly, and garbage collected in one thread."""

LONG_JVM: Final = "-XX:+UseParallelGC"
"""Of a large job, whose pauses delay no user."""

FIELDS_MAX: Final = 48
"""Steps of a plan over wider rows are compiled each by itself, into methods that a JVM compiles as well. Together they
make one method, and none above 8,000 bytes is ever compiled: the rules of lag have 28,000. Files of samples are
narrower, so that they are still read by columns (docs/performance.md)."""

_LOG_SETTINGS = """\
rootLogger.level = warn
rootLogger.appenderRef.file.ref = file
appender.file.type = File
appender.file.name = file
appender.file.fileName = {file}
appender.file.layout.type = PatternLayout
appender.file.layout.pattern = %d{{yyyy-MM-dd'T'HH:mm:ss.SSS}} %p %c{{1}}: %m%n%ex
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionOptions:
    """How a session is made.

    Attributes:
        name: What Spark calls the application.
        master: Where it runs: `local[*]`, `local[4]`, `spark://...`; null: what `spark-submit` says, else `local[*]`.
        cores: Tasks at once that shuffles are cut for; null: as many as the session has.
        ui: Whether Spark serves its page.
        log_file: Where Spark's log goes in place of the console, and what Java says by itself; its settings are
            written beside it, to `<log_file>.properties`. "" leaves it on the console. Under `spark-submit`, which has
            begun to write before, it is what comes once there is a session.
        java_options: What Spark's own JVM is started with besides. Under `spark-submit` it was started before.
        settings: Further settings of Spark, which win.
    """

    name: str = "pyddmq lag"
    master: str | None = None
    cores: int | None = None
    ui: bool = True
    log_file: str = ""
    java_options: str = ""
    settings: Mapping[str, str] = field(default_factory=dict)


def settings_of(options: SessionOptions) -> dict[str, str]:
    """Return Spark's settings: UTC, adaptive plans, filters handed to Python sources, state in RocksDB, code in parts.

    Raises:
        ValueError: `cores` is below 1.
    """
    if options.cores is not None and options.cores < 1:
        raise ValueError(f"a session needs at least one core, got {options.cores}")
    found = {
        "spark.app.name": options.name,
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.adaptive.enabled": "true",
        # Without it a Python source that takes filters cannot be read at all.
        "spark.sql.python.filterPushdown.enabled": "true",
        "spark.sql.codegen.maxFields": str(FIELDS_MAX),
        "spark.sql.streaming.stateStore.providerClass": _ROCKSDB,
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        "spark.ui.enabled": str(options.ui).lower(),
        "spark.ui.showConsoleProgress": "false",
    }
    if options.cores is not None:
        found["spark.sql.shuffle.partitions"] = str(options.cores)
    if options.master is not None:
        found["spark.master"] = options.master
    log = f"-Dlog4j2.configurationFile={options.log_file}.properties" if options.log_file else ""
    if java := f"{log} {options.java_options}".strip():
        found["spark.driver.extraJavaOptions"] = java
    return {**found, **options.settings}


def session(options: SessionOptions | None = None) -> SparkSession:
    """Return the process's session, created with `options` if missing; an existing one receives `spark.sql` ones.

    Workers run this very Python: Spark would otherwise take the first `python3` on the path.

    Raises:
        ValueError: An option is out of bounds.
        RuntimeError: There is no Java, or it is too old for Spark.
    """
    options = options or SessionOptions()
    settings = settings_of(options)
    if SparkSession.getActiveSession() is not None:
        settings = {name: value for name, value in settings.items() if name.startswith("spark.sql.")}
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    try:
        if options.log_file and SparkContext._active_spark_context is None:
            _start_quietly(settings, options.log_file)
        builder = SparkSession.builder
        for name, value in settings.items():
            builder = builder.config(name, value)
        made = builder.getOrCreate()
    except Exception as error:
        raise RuntimeError(
            f"no Spark session: {error}. Spark 4 needs Java 17 or newer, as `java` on the path"
        ) from error
    if "spark.sql.shuffle.partitions" not in settings:
        made.conf.set("spark.sql.shuffle.partitions", str(made.sparkContext.defaultParallelism))
    return made


def _start_quietly(settings: Mapping[str, str], log_file: str) -> None:
    """Make the context, with all that Spark and its JVM say in a file."""
    with open(f"{log_file}.properties", "w", encoding="utf-8") as file:
        file.write(_LOG_SETTINGS.format(file=log_file))
    conf = SparkConf().setAll(list(settings.items()))
    # What Java writes to the console before there is a log, of modules that are being tried say.
    with open(log_file, "ab") as said:
        gateway = launch_gateway(conf, {"stdout": said, "stderr": said})  # type: ignore[no-untyped-call]
    SparkContext(conf=conf, gateway=gateway)
    if _SUBMITTED in os.environ:
        # The JVM was there before: settings of its start come too late, and before this Spark puts its own over ours.
        logs = gateway.jvm.org.apache.logging.log4j.core.config.Configurator
        logs.reconfigure(gateway.jvm.java.io.File(os.path.abspath(f"{log_file}.properties")).toURI())
