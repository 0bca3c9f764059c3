"""`pyddmq demo`: real events through a running node, and a verdict."""

from __future__ import annotations

import contextlib
import enum
import uuid
from collections.abc import Iterator, Sequence
from typing import Annotated

import typer

from broker.runtime.seams import SystemClock
from proxy.cli.errors import CliError, refusal_code, translate
from proxy.cli.options import CONSUMER_DEFAULT, PRODUCER_DEFAULT, AsJson, ConsumerAddress, ProducerAddress
from proxy.cli.output import print_json, print_line, progress
from proxy.demo.report import Check, Report
from proxy.operate.text import amount
from proxy.process.exit_codes import ExitCode
from pyddmq import ClientError, ClientMisuse, PullRefused, SendRefused


class Upstream(enum.StrEnum):
    """Where the topic of `demo events` stands."""

    EMBEDDED = "embedded"
    KAFKA = "kafka"


class Spoil(enum.StrEnum):
    """What `--break` shows the checker in the place of the truth."""

    ORDER = "order"
    LOSS = "loss"


def events(
    *,
    count: Annotated[
        int | None, typer.Option("--events", min=1, help="Only the first so many events; all by default.")
    ] = None,
    clients: Annotated[int, typer.Option(min=1, max=64, help="Pull clients at work at once.")] = 4,
    spoil: Annotated[
        Spoil | None, typer.Option("--break", help="Spoil what the checker sees, to show that its checks can fail.")
    ] = None,
    patience: Annotated[float, typer.Option(min=1, help="Seconds of silence until events count as lost.")] = 60.0,
    upstream: Annotated[
        Upstream,
        typer.Option(
            "--upstream", help="embedded: a running node's own store; kafka: two nodes of its own over Kafka."
        ),
    ] = Upstream.EMBEDDED,
    kafka: Annotated[
        str | None,
        typer.Option(
            "--kafka",
            metavar="HOST:PORT",
            envvar="PYDDMQ_KAFKA",
            help="With --upstream kafka: a Kafka that is there; else one is started.",
        ),
    ] = None,
    producer: ProducerAddress = PRODUCER_DEFAULT,
    consumer: ConsumerAddress = CONSUMER_DEFAULT,
    as_json: AsJson = False,
) -> int:
    """Send real events through a running node and check what comes back.

    8,577 events of permit cases go to topic permits with the case as key; several clients pull group permits-audit,
    fail one event in twenty on purpose, and check that all arrive, each case in order, failed ones retried in place.
    With --upstream kafka two node processes stand in front of a topic in Kafka, and one is killed midway. Exit code 1
    when a check fails.
    """
    if upstream is Upstream.KAFKA:
        from proxy.cli.demo.demo_kafka import kafka_demo

        return kafka_demo(count, clients, spoil.value if spoil else None, patience, kafka, as_json=as_json)
    from proxy.demo.events import load_events
    from proxy.demo.run import DemoOptions, DemoRun

    options = DemoOptions(
        producer=producer,
        consumer=consumer,
        run=uuid.uuid4().hex[:12],
        clients=clients,
        spoil=spoil.value if spoil is not None else None,
        patience_seconds=patience,
    )
    messages = load_events(count)
    if not as_json:
        sent, pulling = amount(len(messages), "event"), amount(clients, "client")
        print_line(f"run {options.run}: {sent} to topic permits, {pulling} of permits-audit")
    with (
        node_errors("topic permits and group permits-audit"),
        progress("events done", len(messages), unit="messages", enabled=not as_json) as advance,
    ):
        run = DemoRun(messages, options, clock=SystemClock(), progress=lambda _sent, done: advance(done))
        report = run.execute()
    if as_json:
        print_json(report.as_json())
    else:
        _print_report(report)
    return ExitCode.OK if report.passed else ExitCode.CHECK_FAILED


@contextlib.contextmanager
def node_errors(needs: str) -> Iterator[None]:
    """Turn what a client raises into how a demo ends.

    Args:
        needs: What the node's configuration must have for this demo.

    Raises:
        CliError: In the place of a ClientError or ValueError.
    """
    try:
        yield
    except ValueError as error:
        if isinstance(error, ClientMisuse):
            raise translate(error, option="--producer and --consumer") from error
        raise CliError(str(error), ExitCode.USAGE) from error
    except ClientError as error:
        if error.retriable or not isinstance(error, PullRefused | SendRefused):
            raise translate(error, option="--producer and --consumer") from error
        advice = f"The demo needs {needs}, as the sample configuration has them."
        raise CliError(f"the node refused: {error}. {advice}", refusal_code(error)) from error


def print_checks(checks: Sequence[Check]) -> None:
    """Print the verdicts of a demo, with examples of what was wrong."""
    for check in checks:
        print_line(f"  {'ok    ' if check.passed else 'FAILED'}  {check.name}: {check.promise}")
        if not check.passed:
            print_line(f"          {amount(check.findings.count, 'violation')}, for example:")
            for example in check.findings.examples:
                print_line(f"            {example}")


def print_verdict(checks: Sequence[Check]) -> None:
    """Print the last line of a demo."""
    failed = [check.name for check in checks if not check.passed]
    print_line(f"failed: {', '.join(failed)}" if failed else "all checks passed")


def _print_report(report: Report) -> None:
    print_checks(report.checks)
    print_line(
        f"sent       {amount(report.events, 'event')} in {report.send_seconds:.2f} s, {report.sent_per_second:,.0f}/s"
    )
    rate = f"{report.delivered_per_second:,.0f}/s"
    print_line(f"delivered  {amount(report.deliveries, 'time')} in {report.consume_seconds:.2f} s, {rate}")
    print_line(f"           {report.failures:,} failed on purpose, {amount(report.repeats, 'repeat')}")
    if report.foreign:
        print_line(f"           acked on the way: {amount(report.foreign, 'message')} of other runs or producers")
    print_line(
        f"lag        {amount(report.lag, 'message')}, {report.lag_seconds:.1f} s (age of the oldest event not done)"
    )
    print_verdict(report.checks)
