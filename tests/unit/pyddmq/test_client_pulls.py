"""What both consumers send with every pull."""

from __future__ import annotations

import tomllib

from proxy.wire.texts import CLIENT_NAME_MAX, client_name
from pyddmq.client.pulling.pulls import VERSION
from tests.unit.project.test_house_rules import ROOT


def test_client_says_the_version_that_is_installed() -> None:
    """An operator sees which clients are old; and the node shows all of what this one says."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert f"pyddmq-python {project['version']}" == VERSION
    assert client_name(VERSION) == VERSION
    assert len(VERSION) <= CLIENT_NAME_MAX
