"""A real node on free loopback ports and a temporary directory, in a thread of the test process."""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Callable, Coroutine
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

from actions.registry import Registry
from broker.runtime.async_steps import run_async
from broker.runtime.disk import RealDisk
from broker.runtime.disks.linux_aio import syncs_of
from broker.runtime.seams import Clock, Disk, SystemClock
from conf import Config
from conf.loader import loads
from proxy.node.alarms import alarms_of
from proxy.node.node import Node
from proxy.node.parts import Seams
from proxy.node.reload import Reloader
from proxy.node.views import ReloadResult
from proxy.port.network import AsyncioNetwork
from tests.patient import PATIENCE_SECONDS

T = TypeVar("T")

on_uvloop = False
"""Whether nodes run on uvloop; set for a test by `tests/integration/conftest.py`."""


class RunningNode:
    """Starts on entry and drains on exit; `call` runs a function on the node's own thread."""

    def __init__(
        self,
        yaml: str,
        data: Path,
        *,
        disk: Disk | None = None,
        clock: Clock | None = None,
        drain_seconds: float = 0.1,
    ) -> None:
        self.registry = Registry()
        self._data = data
        self._drain_seconds = drain_seconds
        self._disk = RealDisk() if disk is None else disk
        self._clock = clock or SystemClock()
        self.config = self.read(yaml)
        self.node: Node
        self._loop: asyncio.AbstractEventLoop
        self._started = threading.Event()
        self._error: BaseException | None = None
        self._stop: asyncio.Event
        self._killed = False
        self._thread = threading.Thread(target=self._run, daemon=True)

    def read(self, yaml: str) -> Config:
        """Load a configuration text with free ports and this node's directory put over it."""
        config = loads(yaml, actions=self.registry).config
        node = config.node.model_copy(update={"data": str(self._data), "producer_port": 0, "consumer_port": 0})
        return config.model_copy(update={"node": node})

    @property
    def producer(self) -> str:
        """Address of the producer port."""
        host, port = self.node.producer.address
        return f"{host}:{port}"

    @property
    def consumer(self) -> str:
        """Address of the consumer port."""
        host, port = self.node.consumer.address
        return f"{host}:{port}"

    @property
    def producer_tls(self) -> str:
        """Address of the producer port over TLS."""
        assert self.node.producer.tls_address is not None, "the configuration has it"
        return f"tls://127.0.0.1:{self.node.producer.tls_address[1]}"

    @property
    def consumer_tls(self) -> str:
        """Address of the consumer port over TLS."""
        assert self.node.consumer.tls_address is not None, "the configuration has it"
        return f"tls://127.0.0.1:{self.node.consumer.tls_address[1]}"

    def __enter__(self) -> RunningNode:
        self._thread.start()
        assert self._started.wait(PATIENCE_SECONDS), "the node did not start"
        if self._error is not None:
            raise self._error
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def stop(self) -> None:
        """Drain and close; harmless the second time."""
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._stop.set)
            self._thread.join(PATIENCE_SECONDS)
            assert not self._thread.is_alive(), "the node did not stop"
        if self._error is not None:
            raise self._error

    def kill(self) -> None:
        """End as a killed process would: nothing is flushed or committed any more."""
        self._killed = True
        self.stop()

    def call(self, function: Callable[..., T], *args: Any) -> T:
        """Run a function on the node's thread and return what it returns."""

        async def run() -> T:
            return function(*args)

        return self.wait_for(run())

    def wait_for(self, running: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the node's thread and return what it returns."""
        return asyncio.run_coroutine_threadsafe(running, self._loop).result(PATIENCE_SECONDS)

    def reload(self, yaml: str) -> ReloadResult:
        """Apply a configuration text as a hot reload does."""
        config = self.read(yaml)
        reloader = Reloader(self.node, lambda: loads(yaml, actions=self.registry))
        return self.wait_for(run_async(reloader.applying(config)))

    def _run(self) -> None:
        factory = None
        if on_uvloop:
            import uvloop

            factory = uvloop.Loop
        with asyncio.Runner(loop_factory=factory) as runner:
            runner.run(self._serve())

    @staticmethod
    def _end_all_tasks() -> None:
        """Let no task go on: no dead process reads a closed store and then writes what it has."""
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._stop = asyncio.Event()
        alarms, end_alarms = alarms_of(self._loop, self._clock)
        syncs, end_syncs = syncs_of(self._loop, self._disk)
        seams = Seams(
            loop=self._loop,
            clock=self._clock,
            disk=self._disk,
            randomness=random.Random(1),
            network=AsyncioNetwork(),
            alarms=alarms,
            syncs=syncs,
        )
        self.node = Node(self.config, seams=seams, registry=self.registry)
        try:
            await self.node.start()
            self._started.set()
            await self._stop.wait()
            if self._killed:
                self.node.kill()
                self._end_all_tasks()
            else:
                await self.node.stop(drain_seconds=self._drain_seconds)
        except BaseException as error:
            self._error = error
            self._started.set()
        finally:
            end_alarms()
            end_syncs()
