"""Certificates once per session, and nodes with encrypted ports."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import pytest

from pyddmq import Tls
from tests import running_node
from tests.conftest import need_module
from tests.tls.authority import HOUR, Authority, Issued


@dataclass
class Certificates:
    """What most tests need, on disk: nobody changes it."""

    folder: Path
    authority: Authority = field(default_factory=Authority)
    foreign: Authority = field(default_factory=lambda: Authority("foreign-ca"))

    def __post_init__(self) -> None:
        self.node: Issued = self.authority.issue("node")
        self.client: Issued = self.authority.issue("worker-1")
        self.ca = self.authority.own.write(self.folder, "ca")[0]
        self.foreign_ca = self.foreign.own.write(self.folder, "foreign-ca")[0]
        self.node_files = self.node.write(self.folder, "node")
        self.client_files = self.client.write(self.folder, "client")

    def tls(self, name: str | None = None, *, ca: str | None = None) -> Tls:
        """How a client speaks to the node: without a certificate, or with that of a name."""
        if name is None:
            return Tls(ca=ca or self.ca)
        files = self._files_of(name)
        return Tls(ca=ca or self.ca, certificate=files[0], key=files[1])

    def _files_of(self, name: str) -> tuple[str, str]:
        if name == "client":
            return self.client_files
        made = {
            "foreign": lambda: self.foreign.issue("worker-1"),
            "expired": lambda: self.authority.issue("late", begins=-3 * HOUR, ends=-HOUR),
            "early": lambda: self.authority.issue("early", begins=HOUR, ends=3 * HOUR),
            "server": lambda: self.authority.issue("server-only", usage="server"),
            "other": lambda: self.authority.issue("worker-2"),
        }
        if not (self.folder / f"{name}.crt").exists():
            made[name]().write(self.folder, name)
        return str(self.folder / f"{name}.crt"), str(self.folder / f"{name}.key")

    def yaml(self, more: str = "", *, ask: str = "none") -> str:
        """A configuration with encrypted ports beside the plain ones; `more` stands in the section `tls`."""
        lines = [
            "tls:",
            f"  certificate: {self.node_files[0]}",
            f"  key: {self.node_files[1]}",
            "  producer: {port: 0}",
            "  consumer: {port: 0}",
        ]
        if ask != "none":
            lines += [f"  clientCertificates: {ask}", f"  clientCa: {self.ca}"]
        return "\n".join([*lines, *(f"  {line}" for line in more.splitlines()), TOPICS])


TOPICS = """topics: {orders: {queues: 1}}
groups:
  - group: billing
    topics: [{topic: orders, maxPullBatchSize: 1, timeout: 600000}]
"""


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    """Made once."""
    return Certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(params=["asyncio", "uvloop"])
def both_loops(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Running nodes of the test are run once on asyncio's loop and once on uvloop."""
    if request.param == "uvloop":
        need_module("uvloop", "pip install uvloop")
        monkeypatch.setattr(running_node, "on_uvloop", True)
