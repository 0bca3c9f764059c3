"""`pyddmq demo --upstream kafka` where there is nothing to run it on."""

from __future__ import annotations

import socket
import sys
from pathlib import Path

import pytest

from proxy.cli.app import run
from proxy.cli.demo import demo_kafka
from proxy.cli.demo.demo_kafka import look_who_listens
from proxy.demo.kafka import download as jars
from tests.conftest import need_module
from tests.patient import nobody_there


def test_no_kafka_and_no_java_is_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With both ways out."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("PYDDMQ_KAFKA", raising=False)
    assert run(["demo", "--upstream", "kafka"]) == 11
    said = capsys.readouterr().err
    assert "PYDDMQ_KAFKA=host:port (or --kafka) names one that runs" in said
    assert "needs java, which is not installed (apt install openjdk-17-jre-headless)" in said


def test_jars_without_maven_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Unless they are cached."""
    monkeypatch.setenv("PATH", str(tmp_path))
    pom = tmp_path / "pom.xml"
    pom.write_text("<project/>")
    monkeypatch.setenv("PYDDMQ_INTEROP_CACHE", str(tmp_path))
    folder = jars.folder_of(pom, "x")
    with pytest.raises(jars.CannotFetch, match="X needs mvn, which is not installed"):
        jars.fetch(pom, folder, "X")
    folder.mkdir()
    (folder / "complete").touch()
    assert jars.fetch(pom, folder, "X") == folder


def test_wrong_address_and_missing_package_are_told(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each in a sentence."""
    assert run(["demo", "--upstream", "kafka", "--kafka", "here"]) == 2
    assert "write host:port" in capsys.readouterr().err
    monkeypatch.setitem(sys.modules, "confluent_kafka", None)
    assert run(["demo", "--upstream", "kafka", "--kafka", "localhost:1"]) == 8
    assert "pip install 'pyddmq[kafka]'" in capsys.readouterr().err
    monkeypatch.setattr(demo_kafka, "kafka_jars", lambda: pytest.fail("a Kafka is fetched in vain"))
    assert run(["demo", "--upstream", "kafka"]) == 8


def test_address_where_nobody_listens_is_told_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    """With the last one that was tried; one of several is enough."""
    need_module("confluent_kafka", "pip install 'pyddmq[kafka]'")
    with nobody_there() as one, nobody_there() as other, socket.create_server(("127.0.0.1", 0)) as there:
        assert run(["demo", "--upstream", "kafka", "--kafka", f"{one},{other}"]) == 4
        assert f"Kafka is asked in vain: {other}: Connection refused" in capsys.readouterr().err
        look_who_listens(f"{one}, 127.0.0.1:{there.getsockname()[1]}")
