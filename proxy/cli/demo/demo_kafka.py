"""`pyddmq demo --upstream kafka`: the permit events over topics in Kafka, with two nodes, one of which is killed."""

from __future__ import annotations

import contextlib
import tempfile
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

from broker.runtime.seams import SystemClock
from proxy.cli.demo.demo_checks import conclude, node_errors
from proxy.cli.errors import CliError
from proxy.cli.output import print_line, progress
from proxy.demo.events import load_events
from proxy.demo.kafka.download import CannotFetch
from proxy.demo.kafka.nodes import NodeFailed
from proxy.demo.kafka.run import PARTITIONS, KafkaOptions, KafkaReport, KafkaRun
from proxy.demo.kafka.server import KafkaFailed, KafkaProcess, kafka_jars
from proxy.operate.text import amount
from proxy.process.exit_codes import ExitCode

LISTENS_SECONDS = 10.0
"""What is waited at most for somebody who listens."""


def kafka_demo(
    count: int | None, clients: int, spoil: str | None, patience: float, address: str | None, *, as_json: bool
) -> int:
    """Run it.

    Args:
        count: Only the first so many events; None: all.
        clients: Pull clients of each node.
        spoil: What `--break` spoils.
        patience: Seconds of silence until events count as lost.
        address: A Kafka that is there; None: one is started.
        as_json: Whether the outcome is printed as JSON.
    """
    from upstream.kafka_client.package import confluent

    run = uuid.uuid4().hex[:12]
    messages = load_events(count)

    def told(text: str) -> None:
        if not as_json:
            print_line(text)

    with tempfile.TemporaryDirectory(prefix="pyddmq-demo-") as scratch, _errors():
        folder = Path(scratch)
        confluent()  # Before a Kafka is fetched and started, for nothing without it.
        with _kafka(folder, address, told) as where:
            topic = f"permits-{run}"
            _make_topic(where, topic)
            told(f"run {run}: {amount(len(messages), 'event')} to topic {topic}, {PARTITIONS} partitions")
            options = KafkaOptions(
                address=where, topic=topic, run=run, clients=clients, spoil=spoil, patience_seconds=patience
            )
            with (
                node_errors("the topic in Kafka"),
                progress("events done", len(messages), unit="messages", enabled=not as_json) as advance,
            ):
                demo = KafkaRun(messages, options, folder, clock=SystemClock(), told=told, progress=advance)
                report = demo.execute()
    return conclude(report, lambda: _print(report), as_json=as_json)


@contextlib.contextmanager
def _kafka(folder: Path, address: str | None, told: Callable[[str], None]) -> Iterator[str]:
    """Give the address of a Kafka; of one that is started, which ends with the block."""
    if address is not None:
        yield address
        return
    try:
        jars = kafka_jars()
    except CannotFetch as error:
        text = f"there is no Kafka: PYDDMQ_KAFKA=host:port (or --kafka) names one that runs; to start one, {error}"
        raise CliError(text, ExitCode.NOT_FOUND) from error
    told("starting a Kafka")
    server = KafkaProcess(folder / "kafka", jars, ports=free_ports())
    try:
        server.start()
        yield server.address
    finally:
        server.kill()


def look_who_listens(servers: str) -> None:
    """Look whether anybody does at one of these, since Kafka's client would ask on for a minute before it says so.

    Raises:
        CliError: Nobody.
    """
    import socket

    said = ""
    for each in servers.split(","):
        host, _, port = each.strip().rpartition(":")
        try:
            socket.create_connection((host.strip("[]"), int(port)), timeout=LISTENS_SECONDS).close()
            return
        except OSError as error:
            said = f"{each.strip()}: {error.strerror or error}"
    raise CliError(f"Kafka is asked in vain: {said}", ExitCode.CANNOT_CONNECT)


def free_ports() -> tuple[int, int]:
    """Return two ports that nobody listens on now."""
    import socket

    with socket.socket() as one, socket.socket() as other:
        one.bind(("127.0.0.1", 0))
        other.bind(("127.0.0.1", 0))
        return one.getsockname()[1], other.getsockname()[1]


def _make_topic(address: str, topic: str) -> None:
    from pydantic import ValidationError

    from conf.sections.kafka import KafkaClusterConfig
    from upstream.kafka_client.new_topic import make_topic

    try:
        config = KafkaClusterConfig.model_validate({"bootstrapServers": address})
    except ValidationError:
        raise CliError(f"PYDDMQ_KAFKA is {address!r}; write host:port", ExitCode.USAGE) from None
    look_who_listens(address)
    make_topic(config, topic, PARTITIONS, client_id="pyddmq-demo", clock=SystemClock())


@contextlib.contextmanager
def _errors() -> Iterator[None]:
    from upstream.kafka.link import KafkaFailure
    from upstream.kafka_client.package import KafkaUnusable

    try:
        yield
    except KafkaUnusable as error:
        code = ExitCode.WRONG_PYTHON if isinstance(error.__cause__, ImportError) else ExitCode.USAGE
        raise CliError(str(error), code) from error
    except KafkaFailure as error:
        raise CliError(f"Kafka is asked in vain: {error}", ExitCode.CANNOT_CONNECT) from error
    except (KafkaFailed, NodeFailed) as error:
        raise CliError(str(error), ExitCode.CHECK_FAILED) from error


def _print(report: KafkaReport) -> None:
    done = f"{amount(report.deliveries, 'delivery')} in {report.seconds:.2f} s"
    print_line(f"delivered  {amount(report.events, 'event')}, {done}")
    print_line(f"           {report.failures:,} failed on purpose, {amount(report.repeats, 'repeat')}")
    if report.latest_ms is not None:
        print_line(f"           the oldest answer among those was given {report.latest_ms} ms before the kill")
    if report.silence_ms is not None:
        print_line(f"           what the killed node had came again after {report.silence_ms / 1000:.1f} s")
