"""RocketMQ's jars, its name server and compiled client: once for all tests of the folder."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.interop import rocketmq


class Surroundings(NamedTuple):
    """What every test needs: a folder that is removed, the class path, and the name server's address."""

    folder: Path
    jars: Path
    namesrv: str

    def broker(self, name: str, settings: dict[str, str]) -> rocketmq.Broker:
        """Start a broker."""
        return rocketmq.Broker(self.folder / name, self.jars, self.namesrv, settings)

    def client(self) -> rocketmq.Client:
        """Start RocketMQ's clients."""
        return rocketmq.Client(self.folder / "client", self.jars, self.namesrv)


@pytest.fixture(scope="session")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Class path, and the folder with the compiled client."""
    jars = rocketmq.fetch()
    folder = tmp_path_factory.mktemp("classes")
    rocketmq.compile_programs(jars, folder)
    return jars, folder


@pytest.fixture
def rocket(compiled: tuple[Path, Path], tmp_path: Path) -> Iterator[Surroundings]:
    """What a test needs, with a name server that knows no other test's broker; its stores are removed at the end."""
    jars, classes = compiled
    (tmp_path / "Interchange.class").symlink_to(classes / "Interchange.class")
    server = rocketmq.NameServer(tmp_path / "namesrv", jars)
    try:
        yield Surroundings(tmp_path, jars, server.address)
    finally:
        server.stop()
        shutil.rmtree(tmp_path, ignore_errors=True)
