"""The jars of RocketMQ 5.3.3, by the pom beside this file."""

from __future__ import annotations

from pathlib import Path

from bench.servers.maven import Jars

HERE = Path(__file__).parent
VERSION = "5.3.3"
JARS = Jars(f"RocketMQ {VERSION}", HERE / "pom.xml", VERSION)
