"""The YAML of the pages: configurations are valid, and objects of KEDA name metrics that exist."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest
import yaml
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from proxy.admin.entry.rights import READING
from proxy.cli.app import run
from proxy.operate.views.lag import LagAnswer, LagGroup
from proxy.process.exit_codes import ExitCode

ROOT = Path(__file__).resolve().parents[2]
OF_KEDA = "docs/howto/scale-with-keda.md"
OF_TLS = {"docs/tls.md", "docs/howto/open-to-the-network.md"}
TOKEN = ["access", "token", "create", "--file", "tokens.json", "--principal", "billing", "--days", "90"]
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


SHOWN = [each for each in blocks() if each[0] not in {OF_KEDA, *ELSEWHERE}]


def test_pages_have_configurations() -> None:
    """The search for them finds what stands there."""
    assert {"docs/cli.md", "docs/configuration.md", "docs/howto/retries.md"} <= {page for page, _ in SHOWN}


@pytest.mark.parametrize(("page", "text"), SHOWN, ids=[page for page, _ in SHOWN])
def test_configuration_is_valid(
    page: str, text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As the page has it, with the files that it names; a part of a list of groups below its word."""
    monkeypatch.chdir(tmp_path)
    if "tokens: tokens.json" in text:
        assert run(TOKEN) == ExitCode.OK
    if "file: issuer.pem" in text:
        public = ec.generate_private_key(ec.SECP256R1()).public_key()
        Path("issuer.pem").write_bytes(public.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))
    if page in OF_TLS:
        assert run(["tls", "dev", "./tls"]) == ExitCode.OK
    file = tmp_path / "node.yaml"
    whole = text.startswith(("node:", "lag:", "access:", "tls:", "topics:", "groups:", "kafka:"))
    file.write_text(text if whole else f"groups:\n{text}", encoding="utf-8")
    code = run(["config", "check", str(file)])
    assert code == ExitCode.OK, (page, capsys.readouterr().out)


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
    assert (asked.path, parse_qs(asked.query)) == ("/api/lag", {"group": ["orders-billing"]})
    assert triggers["metrics-api"]["valueLocation"] == "groups.0.unfinished"
    assert asked.path in READING
    assert "groups" in LagAnswer.__struct_fields__
    assert "unfinished" in LagGroup.__struct_fields__
