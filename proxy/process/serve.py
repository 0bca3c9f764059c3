"""`pyddmq serve`: one node on real sockets and files, with its admin port, signals and hot reload.

SIGTERM and SIGINT drain (D22); a second one ends at once, losing nothing that was acknowledged. SIGHUP, and a change
of the configuration file, reload. With `json`, the ready line of D24 is the only thing on stdout.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import gc
import json
import os
import platform
import random
import secrets
import signal
import sys
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import structlog

from actions.registry import ActionError, Registry
from broker.errors import StoreError, StoreFailed, StoreUnwritable
from broker.opening.accepted_content import accept
from broker.options import StoreOptions
from broker.runtime.disk import RealDisk
from broker.runtime.disks.linux_aio import syncs_of
from broker.runtime.metrics import Metrics
from broker.runtime.rate_limited_log import RateLimitedLog, place_of
from broker.runtime.seams import Disk, SystemClock
from conf import Config, ConfigError, Loaded, load
from conf.checks import check_access
from conf.file_faults import file_fault
from conf.sections.access_files import AccessUnreadable, FileState, state_of
from conf.tls_checks import tls_host
from proxy.node import logs
from proxy.node.action_places import unmakeable
from proxy.node.alarms import alarms_of
from proxy.node.node import Node
from proxy.node.opened import Opened
from proxy.node.parts import Seams
from proxy.node.reload import Reloader
from proxy.port.network import (
    DESCRIPTORS_KEPT_MAX,
    AsyncioNetwork,
    ListenError,
    address_text,
    raise_descriptor_limit,
)
from proxy.process.exit_codes import ExitCode
from proxy.process.process_end import Leftovers
from proxy.process.service_manager import ServiceManager, StartReporter
from proxy.recording.trace_export import TracingUnavailable
from proxy.tls.port import TlsPort
from proxy.tls.ports import TlsFilesUnusable, TlsPorts
from upstream.kafka.link import KafkaFailure

if TYPE_CHECKING:
    from proxy.admin import AdminServer


# Watches the configuration file: reloads when it is another than the one that was read, and reports when it is missing.


class ConfigWatch:
    """Compares the file with the one that was read; `look` is called when it may have changed, and each second.

    Args:
        signature: Looks at the file.
        seen: What it gave when the file was read.
        reloader: Told of it.
    """

    def __init__(self, signature: Callable[[], FileState], seen: FileState, reloader: Reloader) -> None:
        self._signature = signature
        self._seen = seen
        self._reloader = reloader
        self._missing = False

    async def look(self) -> None:
        """Reload when the file is another one, or back; a file that vanishes changes nothing, but is reported."""
        now = self._signature()
        was_missing, self._missing = self._missing, now is None
        self._reloader.look(is_there=now is not None)
        if now is not None and (now != self._seen or was_missing):
            self._seen = now
            await self._reloader.reload()


# Exceptions that no caller awaits, in a callback or a task of the loop: a line per place and minute.


def report_faults(loop: asyncio.AbstractEventLoop, limited_log: RateLimitedLog) -> None:
    """Have the loop report through `limited_log`: a connection's callback may fail as often as something arrives."""

    def report(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error, what = context.get("exception"), context.get("message")
        if isinstance(error, Exception):
            # The loop's words hold addresses of objects; the line of the code distinguishes faults.
            limited_log.fault("loop_callback_failed", error, kind=place_of(error), what=what)
        elif error is None:
            limited_log.note("loop_callback_failed", fault=what)
        else:
            loop.default_exception_handler(context)

    loop.set_exception_handler(report)


_log = structlog.get_logger(__name__)

_COLLECTED_AFTER = (2_000, 1_250, 1_000)
"""New objects, and passes over those, after which the garbage collector makes a pass: one takes half a millisecond."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeOptions:
    """What the command line says; None leaves the configuration's value.

    Attributes:
        config: Path of the configuration file.
        data: Data directory.
        json: Print the ready line as JSON (D24).
        host, producer_port, consumer_port, admin_port: Where to listen; port 0 takes any free one.
        watch: Reload when the configuration file changes.
        accept: Accept what a store of RocketMQ's has that is not read here (`broker.opening.accepted_content`).
        sample: The file is the sample that comes with pyddmq, since none was named.
    """

    config: Path
    data: str | None = None
    json: bool = False
    host: str | None = None
    producer_port: int | None = None
    consumer_port: int | None = None
    admin_port: int | None = None
    watch: bool = True
    accept: bool = False
    sample: bool = False

    def over(self, config: Config) -> Config:
        """The configuration with what the command line says put over it."""
        values = {
            "data": self.data,
            "host": self.host,
            "producer_port": self.producer_port,
            "consumer_port": self.consumer_port,
            "admin_port": self.admin_port,
        }
        update = {name: value for name, value in values.items() if value is not None}
        return config.model_copy(update={"node": config.node.model_copy(update=update)}) if update else config


def serve(options: ServeOptions, *, disk: Disk | None = None, leftovers: Leftovers | None = None) -> int:
    """Run a node until it is asked to stop.

    Args:
        options: What the command line says.
        disk: Where its data is; the operating system's files when absent.
        leftovers: Ends the process where code of users keeps it from ending; None where the process has other work.

    Returns:
        The exit code of the process (docs/commands.md).
    """
    registry = Registry()
    seen = state_of(options.config)
    try:
        loaded = load(options.config, actions=registry)
    except ConfigError as error:
        return _give_up(options, ExitCode.CONFIG_INVALID, error)
    config = options.over(loaded.config)
    for path, text in check_access(config.node, ruled=config.access is not None):
        # What the command line put over a file that is right by itself.
        return _give_up(options, ExitCode.CONFIG_INVALID, loaded.problem(("node", *path), text))
    try:
        _token(config)
    except OSError as error:
        text = f"{config.node.admin_token_file} cannot be read ({file_fault(error)})"
        return _give_up(options, ExitCode.CONFIG_INVALID, loaded.problem(("node", "adminTokenFile"), text))
    for group in config.groups:
        refusal = unmakeable(registry, config, group)
        if refusal is not None:
            return _give_up(options, ExitCode.CONFIG_INVALID, loaded.problem(refusal.path, refusal.text))
    metrics = Metrics()
    _set_up_logs(config, metrics)
    if sys.flags.optimize:
        text = "Python runs with -O or PYTHONOPTIMIZE, which turns off checks that stop a fault early; start without it"
        _log.warning("assertions_off", text=text)
    for warning in loaded.warnings:
        _log.warning("config_warning", text=str(warning))
    # Its default would end a process that is still recovering. A file that changed meanwhile is found by the watch.
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    # Modules and configuration stay: a pass over them would find next to nothing, in 25 ms.
    gc.freeze()
    gc.set_threshold(*_COLLECTED_AFTER)
    runner = asyncio.Runner(loop_factory=_loop_factory())
    try:
        disk = disk or RealDisk()
        code = _run(runner, options, loaded, seen, registry, disk=disk, metrics=metrics, leftovers=leftovers)
        if leftovers is not None:
            leftovers.watch(code, runner.get_loop())
    finally:
        runner.close()
    if leftovers is not None:
        leftovers.end_beside_libraries(code)
    return code


def _run(
    runner: asyncio.Runner,
    options: ServeOptions,
    loaded: Loaded,
    seen: FileState,
    registry: Registry,
    *,
    disk: Disk,
    metrics: Metrics,
    leftovers: Leftovers | None,
) -> int:
    """Run the node and return the exit code; a failed start is explained on stderr."""
    try:
        return runner.run(_serve(options, loaded, seen, registry, disk=disk, metrics=metrics, leftovers=leftovers))
    except ListenError as error:
        return _give_up(options, ExitCode.PORT_TAKEN, error)
    except AccessUnreadable as error:
        return _give_up(options, ExitCode.CONFIG_INVALID, loaded.problem(error.path, error.text))
    except TracingUnavailable as error:
        return _give_up(options, ExitCode.CONFIG_INVALID, loaded.problem(("node", "tracing"), str(error)))
    except TlsFilesUnusable as error:
        problem = loaded.problem(("tls", *error.unusable.path), error.unusable.text)
        return _give_up(options, ExitCode.CONFIG_INVALID, problem)
    except ActionError as error:
        return _give_up(options, ExitCode.CONFIG_INVALID, f"{options.config}: {error}")
    except KafkaFailure as error:
        return _give_up(options, ExitCode.CONFIG_INVALID, f"{options.config}: kafka: {error}")
    except StoreFailed as error:
        return _give_up(options, ExitCode.STORE_FAILED, error)
    except StoreError as error:
        return _give_up(options, ExitCode.DATA_UNUSABLE, error)


def _give_up(options: ServeOptions, code: ExitCode, why: object) -> ExitCode:
    """Say on stderr why there is no node."""
    said = json.dumps({"error": {"exitCode": code, "message": str(why)}}) if options.json else str(why)
    print(said, file=sys.stderr)
    return code


def _set_up_logs(config: Config, metrics: Metrics) -> None:
    logs.configure(config.node.log_format, config.node.log_level, lost=metrics.counter(logs.LOST))


def _warn_of_descriptors(descriptors_max: int, config: Config) -> None:
    """Say at the start when the limit of open files is low for the connections or queues of the configuration."""
    connections, queues = config.node.max_connections, sum(topic.queues or 0 for topic in config.topics.values())
    files = min(StoreOptions().queue_files_max, descriptors_max // 2)
    if descriptors_max < connections or files < min(queues, StoreOptions().queue_files_max):
        wanted = connections + DESCRIPTORS_KEPT_MAX
        text = (
            f"{descriptors_max:,} connections and files of {files:,} queues can be open at once. "
            f"maxConnections is {connections:,}, and there are {queues:,} queues. Further connections are "
            f"closed, and queue files are reopened for each use. Set `ulimit -n {wanted}`, or "
            f"LimitNOFILE={wanted} for systemd."
        )
        _log.warning("open_files_limited", connections=descriptors_max, queues=queues, text=text)


def _token(config: Config) -> str | None:
    """Token that changes through the admin port must bring; None when none is asked for. Raises OSError."""
    file = config.node.admin_token_file
    if file is None:
        return None
    try:
        return Path(file).read_text(encoding="utf-8").strip()
    except UnicodeDecodeError as error:
        raise OSError(errno.EINVAL, "it is not UTF-8") from error


def _loop_factory() -> type[asyncio.AbstractEventLoop] | None:
    """Uvloop's loop where it is installed, else asyncio's own."""
    try:
        import uvloop
    except ImportError:
        return None
    factory: type[asyncio.AbstractEventLoop] = uvloop.Loop
    return factory


async def _serve(
    options: ServeOptions,
    loaded: Loaded,
    seen: FileState,
    registry: Registry,
    *,
    disk: Disk,
    metrics: Metrics,
    leftovers: Leftovers | None,
) -> int:
    from watchfiles import awatch

    from proxy.admin import AdminServer
    from proxy.operate.changes.desk import AdminToken
    from proxy.operate.changes.node import node_changes
    from proxy.operate.live_node import LiveNode

    config = options.over(loaded.config)
    loop = asyncio.get_running_loop()
    clock = SystemClock()
    alarms, end_alarms = alarms_of(loop, clock)
    syncs, end_syncs = syncs_of(loop, disk)
    seams = Seams(
        loop=loop,
        clock=clock,
        disk=disk,
        randomness=random.Random(),
        network=AsyncioNetwork(),
        descriptors_max=raise_descriptor_limit(),
        alarms=alarms,
        syncs=syncs,
    )
    if options.accept:
        _accept(config.node.data, disk)
    node = Node(config, seams=seams, registry=registry, metrics=metrics)
    report_faults(loop, node.runtime.limited_log)
    reloader = Reloader(
        node,
        lambda: load(options.config, actions=registry),
        over=options.over,
        applied=lambda applied: _set_up_logs(applied, metrics),
        file=str(options.config),
        text=loaded.shown,
    )
    _warn_of_descriptors(seams.descriptors_max, config)
    admin = AdminServer(
        LiveNode(node, reloader),
        changes=node_changes(node),
        token=AdminToken(lambda: _token(config)),
        access=node.parts.access,
        audit=node.parts.audit,
        settings=lambda: node.in_force.config.admin,
        random_bytes=secrets.token_bytes,
        # Who looks after the node gets in where its clients do not any more.
        descriptors_max=seams.descriptors_max + min(64, seams.descriptors_max // 4),
    )
    # The admin port comes first: its address goes into the answer that an HTTP client gets on a Thrift port.
    await admin.start(config.node.admin_host, config.node.admin_port, tls=_admin_tls(node.parts.tls, config))
    manager = ServiceManager(os.environ.get("NOTIFY_SOCKET", ""))
    tasks: list[asyncio.Task[Any]] = []
    stop, hurry = asyncio.Event(), asyncio.Event()
    _on_signals(loop, stop, hurry, leftovers)
    try:
        reporter = StartReporter(node, manager, terminal=None if options.json else sys.stderr)
        opened = await _start(node, admin_url(admin), stop, reporter)
        if opened is None:
            _log.info("stopped", text="before the recovery was done; the next start recovers again")
            return ExitCode.OK
        # What is there by now is left out of the collector's passes: the first one over all that a start made would
        # take ten milliseconds, amid requests. None is made here either: a start leaves next to no garbage, and with
        # 10,000 topics a pass takes a second.
        gc.freeze()
        reloads: set[asyncio.Task[Any]] = set()

        def reload() -> None:
            task = loop.create_task(reloader.reload())
            reloads.add(task)
            task.add_done_callback(reloads.discard)

        loop.add_signal_handler(signal.SIGHUP, reload)
        if options.watch:
            watching = watch_configuration(options.config.absolute(), seen, reloader, node.runtime.limited_log, awatch)
            tasks.append(loop.create_task(watching))
        _announce(options, node, admin, clean=opened.store.recovery.clean)
        manager.ready("serving")
        await stop.wait()
        _log.info("stopping", drain_seconds=node.in_force.config.node.drain_seconds)
        manager.stopping("waits for messages in flight")
        await node.stop(hurry=hurry)
        _log.info("stopped")
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await admin.stop()
        end_alarms()
        end_syncs()
    return ExitCode.STORE_FAILED if node.failure is not None else ExitCode.OK


def _accept(root: str, disk: Disk) -> None:
    """Accept what the store has that is not read; the same content needs no option at the next start."""
    try:
        for each in accept(root, disk):
            _log.warning("store_foreign_accepted", root=root, kind=each.kind, what=each.sentence)
    except OSError as error:
        raise StoreUnwritable(root, error) from error


async def _start(node: Node, admin_hint: str, stop: asyncio.Event, reporter: StartReporter) -> Opened | None:
    """Start the node and say how far it is; None when a stop came before it was ready."""
    loop = asyncio.get_running_loop()
    starting = loop.create_task(node.start(admin_hint=admin_hint))
    stopping = loop.create_task(stop.wait())
    reporting = loop.create_task(reporter.run())
    try:
        await asyncio.wait((starting, stopping), return_when=asyncio.FIRST_COMPLETED)
    finally:
        stopping.cancel()
        reporting.cancel()
        await asyncio.gather(stopping, reporting, return_exceptions=True)
        if not starting.done():
            starting.cancel()
            await asyncio.wait((starting,))
    return None if starting.cancelled() else starting.result()


def _on_signals(
    loop: asyncio.AbstractEventLoop, stop: asyncio.Event, hurry: asyncio.Event, leftovers: Leftovers | None
) -> None:
    def end() -> None:
        if stop.is_set():
            hurry.set()
            if leftovers is not None:
                leftovers.hurried = True
        stop.set()

    loop.add_signal_handler(signal.SIGTERM, end)
    loop.add_signal_handler(signal.SIGINT, end)


async def watch_configuration(
    path: Path, seen: FileState, reloader: Reloader, limited_log: RateLimitedLog, awatch: Callable[..., Any]
) -> None:
    """Reload when the file is another than the one that was loaded.

    The folder is watched, since editors replace files. The file is also looked at every second: a change that came
    before the watch was armed, or on a file system that reports no changes, is found all the same.
    """
    watched = ConfigWatch(lambda: state_of(path), seen, reloader)

    async def looks() -> AsyncIterator[None]:
        while True:
            try:
                async for _ in awatch(path.parent, recursive=False, yield_on_timeout=True, rust_timeout=1000):
                    yield
            except (OSError, RuntimeError) as error:
                # The folder is gone, or the system has no watches left: looking every second does as well.
                limited_log.note("config_watch_failed", folder=str(path.parent), error=str(error), again_seconds=1)
            await asyncio.sleep(1)
            yield

    with contextlib.suppress(asyncio.CancelledError):
        async for _ in looks():
            try:
                await watched.look()
            except Exception as error:
                # This task is not awaited: it would end silently, and the file would not be watched any more.
                limited_log.fault("loop_callback_failed", error, kind=place_of(error), what="reload of a changed file")


def _admin_tls(ports: TlsPorts, config: Config) -> tuple[TlsPort, str, int] | None:
    """The admin port over TLS, with host and port; None where there is none."""
    tls, listener = ports.by_service.get("admin"), config.tls.admin
    if tls is None or listener is None:
        return None
    return tls, tls_host("admin", config.tls, config.node), listener.port


def admin_url(admin: AdminServer) -> str:
    """Where people look at a node."""
    if admin.plain_address is not None:
        return f"http://{address_text(*admin.plain_address)}/"
    return "" if admin.tls_address is None else f"https://{address_text(*admin.tls_address)}/"


def _addresses(node: Node, admin: AdminServer) -> dict[str, str | None]:
    """The ready line's addresses (D24): a service without a plain port has null there."""
    addresses: dict[str, str | None] = {}
    for name, server in (("producer", node.producer), ("consumer", node.consumer), ("admin", admin)):
        addresses[name] = None if server.plain_address is None else address_text(*server.plain_address)
    for name, server in (("producerTls", node.producer), ("consumerTls", node.consumer), ("adminTls", admin)):
        if server.tls_address is not None:
            addresses[name] = address_text(*server.tls_address)
    return addresses


def _shown(addresses: dict[str, str | None], service: str, scheme: str) -> str:
    """The ports of a service as people read them."""
    plain, encrypted = addresses[service], addresses.get(f"{service}Tls")
    return " and ".join(each for each in (plain, f"{scheme}{encrypted}" if encrypted else None) if each)


def _announce(options: ServeOptions, node: Node, admin: AdminServer, *, clean: bool) -> None:
    """Say once, in the log and on stdout, that the node serves, what it is and where everything is."""
    from pyddmq.version import product_version

    addresses = _addresses(node, admin)
    producer, consumer = (_shown(addresses, service, "tls://") for service in ("producer", "consumer"))
    data = str(Path(node.in_force.config.node.data).resolve())
    hint = "the sample; pass your own with --config" if options.sample else "changes apply while the node runs"
    text = (
        f"pyddmq is ready\n  producers  {producer}   (Thrift, framed)\n  consumers  {consumer}   (Thrift, "
        f"framed)\n  console    {admin_url(admin)}\n  data       {data}\n  config     {options.config}   "
        f"({hint})\nCtrl-C stops it once messages in flight are answered."
    )
    _log.info(
        "ready",
        version=product_version(),
        python=platform.python_version(),
        config=str(options.config.absolute()),
        data=data,
        producer=producer,
        consumer=consumer,
        admin=_shown(addresses, "admin", "https://"),
        access=node.parts.access_mode,
        recovery_seconds=round(node.runtime.clock.monotonic() - node.started_monotonic, 3),
        clean=clean,
        pid=os.getpid(),
    )
    ready = {**addresses, "data": data}
    try:
        print(json.dumps(ready) if options.json else text, flush=True)
    except OSError as error:
        # Whoever should have read it does not; the node serves all the same.
        _log.warning("ready_line_not_written", error=str(error), **ready)
