"""Files of deploy/: read by the tools that they are for, and fitting the node: settings, ports, metrics, times."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from conf import Config
from conf.loader import loads
from tests.conftest import need_module, need_program

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
COMPOSE = sorted((DEPLOY / "compose").glob("compose*.yaml"))
MANIFESTS = sorted((DEPLOY / "kubernetes").glob("*.yaml"))
DASHBOARD = json.loads((DEPLOY / "grafana" / "pyddmq.json").read_text())
OF_PROMETHEUS = {"instance", "job", "le"}
"""Labels that Prometheus itself and its histograms add."""


def objects(file: Path) -> Iterator[dict[str, Any]]:
    """Return the objects of a manifest."""
    return iter(yaml.safe_load_all(file.read_text()))


def of_kind(file: Path, *kinds: str) -> dict[str, Any]:
    """Return the only object of these kinds."""
    [found] = [each for each in objects(file) if each["kind"] in kinds]
    return found


def pod_of(file: Path) -> dict[str, Any]:
    """Return the pod that a manifest runs."""
    pod: dict[str, Any] = of_kind(file, "StatefulSet", "Deployment")["spec"]["template"]["spec"]
    return pod


def config_of(text: str) -> Config:
    """Return a node's configuration, which loads without a warning."""
    loaded = loads(text)
    assert not loaded.warnings
    return loaded.config


def seconds_to_stop(config: Config) -> float:
    """Return how long a stop may take: the drain, and the last commit to Kafka."""
    kafka = max(((each.revoke_timeout + each.session_timeout) / 1000 for each in config.kafka.values()), default=0)
    return config.node.drain_seconds + kafka


@pytest.mark.parametrize("file", COMPOSE, ids=lambda file: file.name)
def test_compose_file_keeps_the_schema(file: Path) -> None:
    """The JSON schema of the Compose specification, which check-jsonschema ships."""
    need_module("check_jsonschema", "make setup")
    ended = subprocess.run(
        [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec", file],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr


@pytest.mark.parametrize("file", MANIFESTS, ids=lambda file: file.name)
def test_manifest_keeps_the_schemas(file: Path) -> None:
    """The schemas of Kubernetes' own API, in which an unknown field is an error."""
    validator = need_module("kubernetes_validate", "make setup")
    names = [validator.validate(each, validator.latest_version(), strict=True) for each in objects(file)]
    assert len(names) >= 4


@pytest.mark.parametrize("file", COMPOSE, ids=lambda file: file.name)
def test_compose_file_fits_its_node(file: Path) -> None:
    """Mounted files exist, ports are published on the loopback alone, and a stop has longer than a drain."""
    parsed = yaml.safe_load(file.read_text())
    services = parsed["services"]
    for service in services.values():
        sources = [mount.split(":")[0] for mount in service.get("volumes", ())]
        assert all(
            (file.parent / source).exists() if "/" in source else source in parsed["volumes"] for source in sources
        )
        assert all(port.startswith("127.0.0.1:") for port in service.get("ports", ()))
        assert set(service.get("depends_on", ())) <= services.keys()
    node = services["node"]
    [mounted] = [mount.split(":")[0] for mount in node["volumes"] if mount.endswith(":/etc/pyddmq/node.yaml:ro")]
    config = config_of((file.parent / mounted).read_text())
    assert int(node["stop_grace_period"].removesuffix("s")) >= seconds_to_stop(config) + 10
    ports = {int(port.split(":")[1]) for port in node["ports"]}
    assert ports == {config.node.producer_port, config.node.consumer_port, config.node.admin_port}
    [subnet] = [each["subnet"] for each in parsed["networks"]["default"]["ipam"]["config"]]
    assert config.access is not None
    assert subnet in {str(each.cidr) for each in config.access.networks}


def test_prometheus_of_compose_is_answered() -> None:
    """The node takes the name by which it is scraped, and promtool the file."""
    file = DEPLOY / "compose" / "prometheus.yaml"
    [job] = yaml.safe_load(file.read_text())["scrape_configs"]
    config = config_of((file.parent / "kafka-node.yaml").read_text())
    assert job["static_configs"] == [{"targets": [f"{config.admin.hosts[0]}:{config.node.admin_port}"]}]
    ended = subprocess.run(
        [need_program("promtool", "apt install prometheus"), "check", "config", "--syntax-only", file],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr


@pytest.mark.parametrize("file", MANIFESTS, ids=lambda file: file.name)
def test_manifest_fits_its_node(file: Path) -> None:
    """Its configuration loads, ports and probes are the node's, and a stop has longer than a drain."""
    config = config_of(of_kind(file, "ConfigMap")["data"]["node.yaml"])
    pod = pod_of(file)
    [node] = pod["containers"]
    assert pod["terminationGracePeriodSeconds"] >= seconds_to_stop(config) + 10
    ports = {each["name"]: each["containerPort"] for each in node["ports"]}
    assert ports == {
        "producers": config.node.producer_port,
        "consumers": config.node.consumer_port,
        "admin": config.node.admin_port,
    }
    for service in (each for each in objects(file) if each["kind"] == "Service"):
        assert {each["targetPort"]: each["port"] for each in service["spec"]["ports"]}.items() <= ports.items()
    assert node["livenessProbe"]["httpGet"] == {"path": "/livez", "port": "admin"}
    assert node["readinessProbe"]["httpGet"] == {"path": "/readyz", "port": "admin"}
    # kubelet probes the pod's address, not its loopback.
    assert (config.node.host, config.node.admin_host) == ("0.0.0.0", "0.0.0.0")
    assert node["resources"]["limits"]["memory"] == "1Gi"
    assert config.node.memory_max <= 2**29


@pytest.mark.parametrize("file", MANIFESTS, ids=lambda file: file.name)
def test_objects_of_a_manifest_name_each_other(file: Path) -> None:
    """Selectors match the pod's labels, volumes name what exists, and the pod runs as the image's user."""
    workload = of_kind(file, "StatefulSet", "Deployment")
    labels = workload["spec"]["template"]["metadata"]["labels"]
    assert workload["spec"]["selector"]["matchLabels"] == labels
    assert of_kind(file, "PodDisruptionBudget")["spec"]["selector"]["matchLabels"] == labels
    assert all(each["spec"]["selector"] == labels for each in objects(file) if each["kind"] == "Service")
    pod = pod_of(file)
    named = {volume["configMap"]["name"] for volume in pod["volumes"] if "configMap" in volume}
    named |= {volume["secret"]["secretName"] for volume in pod["volumes"] if "secret" in volume}
    assert named <= {each["metadata"]["name"] for each in objects(file) if each["kind"] in ("ConfigMap", "Secret")}
    volumes = {volume["name"] for volume in pod["volumes"]}
    volumes |= {claim["metadata"]["name"] for claim in workload["spec"].get("volumeClaimTemplates", ())}
    assert {mount["name"] for mount in pod["containers"][0]["volumeMounts"]} == volumes
    user = re.search(r"useradd --uid (\d+)", (ROOT / "Dockerfile").read_text())
    assert user is not None
    assert pod["securityContext"]["runAsUser"] == pod["securityContext"]["fsGroup"] == int(user[1])


def test_kafka_password_is_read_from_the_secret() -> None:
    """The configuration has its place, the Secret its contents."""
    file = DEPLOY / "kubernetes" / "kafka.yaml"
    [secret] = re.findall(r"sasl\.password: \{file: (\S+)\}", of_kind(file, "ConfigMap")["data"]["node.yaml"])
    [folder] = [each["mountPath"] for each in pod_of(file)["containers"][0]["volumeMounts"] if each["name"] == "kafka"]
    assert [f"{folder}/{name}" for name in of_kind(file, "Secret")["stringData"]] == [secret]


def metrics() -> dict[str, set[str]]:
    """Return the labels of every metric on docs/metrics.md."""
    page = (ROOT / "docs" / "metrics.md").read_text()
    rows = re.findall(r"^\| `(\w+)` \| ([^|]*)\|", page, re.MULTILINE)
    known = {name: set(re.findall(r"`(\w+)`", labels)) for name, labels in rows}
    known["process_resident_memory_bytes"] = known["process_cpu_seconds_total"] = set()
    return known


def expressions() -> list[tuple[str, str]]:
    """Return each expression of the dashboard with its legend; the variables' are among them."""
    panels = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]
    found = [(target["expr"], target["legendFormat"]) for panel in panels for target in panel["targets"]]
    for variable in DASHBOARD["templating"]["list"]:
        if variable["type"] == "query":
            [(metric, label)] = re.findall(r"label_values\((\w+), (\w+)\)", variable["query"]["query"])
            found.append((f"sum by ({label}) ({metric})", ""))
    return found


def test_dashboard_has_a_row_per_question() -> None:
    """Each has panels, and each panel has a description."""
    rows = [panel["title"] for panel in DASHBOARD["panels"] if panel["type"] == "row"]
    assert rows == [
        "Overview",
        "Findings",
        "Lag",
        "Rates",
        "Latency",
        "Retries and dead letters",
        "Timers and delays",
        "Disk and memory",
    ]
    panels = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]
    assert all(panel["description"] and panel["targets"] for panel in panels)
    assert len({panel["id"] for panel in DASHBOARD["panels"]}) == len(DASHBOARD["panels"])


@pytest.mark.parametrize(("expression", "legend"), expressions())
def test_dashboard_uses_metrics_and_labels_that_exist(expression: str, legend: str) -> None:
    """Selectors, aggregations and legends name only labels that the metrics of the expression have."""
    known = metrics()
    used = re.findall(r"\b((?:pyddmq|process)_\w+)(?:\{([^}]*)\})?", expression)
    assert used
    for name, selector in used:
        metric = name.removesuffix("_bucket")
        assert metric in known
        assert set(re.findall(r"(\w+)\s*[=!]~?", selector)) <= known[metric] | OF_PROMETHEUS
        kept = known[metric] | OF_PROMETHEUS
        for labels in re.findall(r"\bby \(([^)]*)\)", expression):
            assert set(re.findall(r"\w+", labels)) <= kept
        assert set(re.findall(r"\{\{(\w+)\}\}", legend)) <= kept


def test_prometheus_reads_every_expression(tmp_path: Path) -> None:
    """As recording rules, with Grafana's variables filled in."""
    rules = []
    for number, (expression, _) in enumerate(expressions()):
        filled = re.sub(r"\$(instance|group|topic)", ".*", expression.replace("$__rate_interval", "5m"))
        rules.append({"record": f"dashboard:{number}", "expr": filled})
    file = tmp_path / "rules.yaml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "dashboard", "rules": rules}]}))
    ended = subprocess.run(
        [need_program("promtool", "apt install prometheus"), "check", "rules", file],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr


def test_compose_file_creates_the_topics_that_its_node_needs() -> None:
    """Kafka creates none by itself there; without one of them, sends are refused or dead letters wait."""
    folder = DEPLOY / "compose"
    [script] = yaml.safe_load((folder / "compose.kafka.yaml").read_text())["services"]["topics"]["command"]
    config = config_of((folder / "kafka-node.yaml").read_text())
    waiting = config.kafka["main"].waiting
    assert waiting is not None
    needed = {config.kafka["main"].commit_topic, waiting.topic, waiting.answers_topic}
    for name in (name for name, topic in config.topics.items() if topic.broker_cluster == "main"):
        needed |= {name, f"{name}.WAITING.DLQ"}
        needed |= {
            f"{group}.DLQ" for group, each in config.groups.items() if name in {one.topic for one in each.topics}
        }
    assert set(re.findall(r"create --topic (\S+)", script)) == needed


def test_grafana_finds_its_dashboard() -> None:
    """Provisioning and compose file agree on its folder, and on the address of Prometheus."""
    services = yaml.safe_load((DEPLOY / "compose" / "compose.kafka.yaml").read_text())["services"]
    [mount] = [mount for mount in services["grafana"]["volumes"] if "pyddmq.json" in mount]
    provisioning = DEPLOY / "grafana" / "provisioning"
    [provider] = yaml.safe_load((provisioning / "dashboards" / "pyddmq.yaml").read_text())["providers"]
    assert Path(mount.split(":")[1]).parent == Path(provider["options"]["path"])
    [source] = yaml.safe_load((provisioning / "datasources" / "prometheus.yaml").read_text())["datasources"]
    assert (source["type"], source["url"]) == ("prometheus", "http://prometheus:9090")
