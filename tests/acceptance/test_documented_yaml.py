"""The YAML of the pages: configurations are valid, and what Prometheus is to watch has the names of metrics."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml

from proxy.cli.app import run
from proxy.process.exit_codes import ExitCode

ROOT = Path(__file__).resolve().parents[2]
OF_PROMETHEUS = "docs/operations.md"
OF_KEDA = "docs/howto/scale-with-keda.md"
OF_TLS = {"docs/tls.md", "docs/howto/open-to-the-network.md"}
ELSEWHERE = {"docs/actions.md"}
"""`test_own_actions` starts a node with its block: its actions have to be made first."""


def blocks() -> list[tuple[str, str]]:
    """Page and text of every block."""
    files = sorted((ROOT / "docs").rglob("*.md"))
    pages = ["README.md", *(file.relative_to(ROOT).as_posix() for file in files)]
    found = [
        (page, re.findall(r"```yaml\n(.*?)```", (ROOT / page).read_text(encoding="utf-8"), re.DOTALL)) for page in pages
    ]
    return [(page, text) for page, texts in found for text in texts]


SHOWN = [each for each in blocks() if each[0] not in {OF_PROMETHEUS, OF_KEDA, *ELSEWHERE}]


def test_pages_have_configurations() -> None:
    """The search for them finds what stands there."""
    assert {"docs/cli.md", "docs/configuration.md", "docs/howto/retries.md"} <= {page for page, _ in SHOWN}


@pytest.mark.parametrize(("page", "text"), SHOWN, ids=[page for page, _ in SHOWN])
def test_configuration_is_valid(
    page: str, text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As it stands there; a part of a list of groups below its word, with the certificates that the page has made."""
    monkeypatch.chdir(tmp_path)
    if page in OF_TLS:
        assert run(["tls", "dev", "./tls"]) == ExitCode.OK
    file = tmp_path / "node.yaml"
    file.write_text(
        text if text.startswith(("node:", "access:", "tls:", "topics:", "groups:", "kafka:")) else f"groups:\n{text}",
        encoding="utf-8",
    )
    code = run(["config", "check", str(file)])
    assert code == ExitCode.OK, (page, capsys.readouterr().out)


def names_in(document: Any) -> set[str]:
    """Names of metrics in the expressions of rules."""
    rules = [rule for group in document.get("groups", ()) for rule in group["rules"]]
    return {name for rule in rules for name in re.findall(r"pyddmq_\w+", rule["expr"])}


def test_alerts_watch_metrics_that_there_are() -> None:
    """Each expression names what docs/metrics.md lists, or one of the series of a histogram there."""
    documents = [yaml.safe_load(text) for page, text in blocks() if page == OF_PROMETHEUS]
    watched = set().union(*(names_in(each) for each in documents if isinstance(each, dict)))
    listed = set(re.findall(r"`(pyddmq_\w+)", (ROOT / "docs" / "metrics.md").read_text(encoding="utf-8")))
    assert len(watched) > 8
    assert {re.sub(r"_seconds_(bucket|sum|count)$", "_seconds", name) for name in watched} <= listed


def test_objects_of_keda_are_whole_and_ask_for_what_there_is() -> None:
    """Fields as KEDA has them, figures as texts, metrics that are listed, and a path that the admin port has."""
    objects = [yaml.safe_load(text) for page, text in blocks() if page == OF_KEDA]
    triggers = {}
    for each in objects:
        assert (each["apiVersion"], each["kind"]) == ("keda.sh/v1alpha1", "ScaledObject")
        spec = each["spec"]
        assert spec["scaleTargetRef"]["name"] == each["metadata"]["name"]
        assert 0 <= spec["minReplicaCount"] < spec["maxReplicaCount"]
        for trigger in spec["triggers"]:
            assert all(isinstance(value, str) for value in trigger["metadata"].values()), "KEDA takes texts alone"
            triggers[trigger["type"]] = trigger["metadata"]
    assert set(triggers) == {"prometheus", "metrics-api"}
    listed = set(re.findall(r"`(pyddmq_\w+)", (ROOT / "docs" / "metrics.md").read_text(encoding="utf-8")))
    assert set(re.findall(r"pyddmq_\w+", triggers["prometheus"]["query"])) <= listed
    assert float(triggers["prometheus"]["threshold"]) > float(triggers["prometheus"]["activationThreshold"])
    assert triggers["prometheus"]["ignoreNullValues"] == "false", "nothing known is not 0"
    asked = urlsplit(triggers["metrics-api"]["url"])
    _, version, kafka, cluster, consumer, _, last = asked.path.split("/")
    assert (version, kafka, cluster, consumer, last) == ("v3", "kafka", "pyddmq", "consumer", "lag")
    assert triggers["metrics-api"]["valueLocation"] == "status.totallag"
