"""The jars of RocketMQ by the pom beside this file: that of the benchmark, and that of the interchange tests."""

from __future__ import annotations

from pathlib import Path

from bench.servers.maven import Jars

HERE = Path(__file__).parent
VERSION, INTERCHANGE_VERSION = "5.5.0", "5.3.3"
JARS, INTERCHANGE_JARS = (
    Jars(f"RocketMQ {version}", HERE / "pom.xml", version, f"rocketmq.version={version}")
    for version in (VERSION, INTERCHANGE_VERSION)
)
