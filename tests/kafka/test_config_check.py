"""`pyddmq config check --kafka` at a real Kafka."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from proxy.cli.app import run
from proxy.process.exit_codes import ExitCode
from tests.kafka.topics import make_topic, topic_names

pytestmark = pytest.mark.long


def test_what_does_not_fit_is_told_and_nothing_is_made(
    address: str, topic: Callable[..., str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Missing topics, copies, retention; with the code of a failed check, and 0 once it fits."""
    name, missing = topic(2, retention_ms="1000"), f"missing-{tmp_path.name}"
    group = f"g-{name}"
    config = tmp_path / "node.yaml"
    kafka = f"kafka: {{main: {{bootstrapServers: '{address}', sessionTimeout: 6000, commitTopic: c-{name}}}}}\n"
    read = f"topics: {{{name}: {{brokerCluster: main}}}}\ngroups: [{{group: {group}, topics: [{{topic: {name}}}]}}]\n"
    config.write_text(kafka + read.replace("topics: {", f"topics: {{{missing}: {{brokerCluster: main}}, ", 1))
    assert run(["config", "check", str(config), "--kafka", "--json"]) == ExitCode.CHECK_FAILED
    reported = json.loads(capsys.readouterr().out)
    problems = {each["key"]: each["text"] for each in reported["problems"]}
    assert set(problems) == {f"topics.{missing}", f"groups.{group}", f"groups.{group}.{name}"}
    assert f"{missing} does not exist in main" in problems[f"topics.{missing}"]
    assert f"--create --topic {group}.DLQ" in problems[f"groups.{group}"]
    assert "keeps messages for 1 s (retention.ms)" in problems[f"groups.{group}.{name}"]
    warnings = [(each["key"], each["text"]) for each in reported["warnings"]]
    for key, said in ((f"topics.{name}", "has only one broker"), ("kafka.main.commitTopic", "policy=compact")):
        assert any(where == key and said in text for where, text in warnings), warnings
    assert not {missing, f"{group}.DLQ", f"c-{name}"} & topic_names(address), "it only looks"
    make_topic(address, f"{group}.DLQ", 1, {})
    quick = read.replace(f"{{topic: {name}}}", f"{{topic: {name}, retryIntervals: [], timeout: 10}}")
    config.write_text(kafka + quick)
    assert run(["config", "check", str(config), "--kafka"]) == ExitCode.OK
    assert "and its clusters match it" in capsys.readouterr().out


def test_cluster_that_does_not_answer_is_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With the code for what cannot be reached."""
    config = tmp_path / "node.yaml"
    config.write_text("kafka: {main: {bootstrapServers: '127.0.0.1:9'}}\n")
    assert run(["config", "check", str(config), "--kafka"]) == ExitCode.CANNOT_CONNECT
    [problem, _] = capsys.readouterr().out.splitlines()
    assert "kafka.main: cannot be queried at 127.0.0.1:9" in problem
