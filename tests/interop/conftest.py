"""RocketMQ's jars, its name server and its clients: one of each for all tests of the folder."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.interop import rocketmq


class Shared:
    """A name server and the clients' process, which all tests use one after the other."""

    def __init__(self, folder: Path, programs: rocketmq.Programs) -> None:
        self.programs = programs
        self._folder = folder
        self._server = rocketmq.NameServer(folder / "namesrv", programs)
        self.namesrv = self._server.address
        # Made now: what a test starts is ended with it.
        self._client: rocketmq.Client | None = rocketmq.Client(folder / "client", programs, self.namesrv)

    @contextmanager
    def client(self) -> Iterator[rocketmq.Client]:
        """The clients, knowing no broker; after a failure within the block the next test gets a new process."""
        if self._client is None or self._client.process.poll() is not None:
            self._client = rocketmq.Client(self._folder / "client", self.programs, self.namesrv)
        client, self._client = self._client, None
        try:
            client.ask(do="reset")
            yield client
        except BaseException:
            client.kill()
            raise
        self._client = client

    def end(self) -> None:
        """End both."""
        if self._client is not None:
            self._client.kill()
        # It has nothing to save, and takes 3 s to end by itself.
        self._server.kill()


class Surroundings(NamedTuple):
    """What every test needs: a folder that is removed, and the processes that all share."""

    folder: Path
    shared: Shared

    def broker(self, name: str, settings: dict[str, str]) -> rocketmq.Broker:
        """Start a broker. The name server forgets it when its connection ends; only one runs at a time."""
        return rocketmq.Broker(self.folder / name, self.shared.programs, self.shared.namesrv, settings)

    def client(self) -> rocketmq.ClientContext:
        """RocketMQ's clients, for a `with` block."""
        return self.shared.client()


@pytest.fixture(scope="session")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> rocketmq.Programs:
    """Jars, and the folder with the compiled programs."""
    return rocketmq.compiled_programs(tmp_path_factory.mktemp("classes"))


@pytest.fixture(scope="session")
def shared(compiled: rocketmq.Programs, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shared]:
    """Name server and clients."""
    found = Shared(tmp_path_factory.mktemp("shared"), compiled)
    try:
        yield found
    finally:
        found.end()


@pytest.fixture
def rocket(shared: Shared, tmp_path: Path) -> Iterator[Surroundings]:
    """What a test needs; its stores are removed at the end."""
    try:
        yield Surroundings(tmp_path, shared)
    finally:
        shutil.rmtree(tmp_path, ignore_errors=True)
