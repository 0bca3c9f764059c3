"""`pyddmq demo`: real events through a running node, and a verdict."""

from __future__ import annotations

import contextlib
import enum
import uuid
from collections.abc import Iterator
from typing import Annotated

import typer

from broker.runtime.seams import SystemClock
from proxy.cli.demo.demo_lag_command import conclude
from proxy.cli.errors import CliError, refusal_code, translate
from proxy.cli.options import CONSUMER_DEFAULT, PRODUCER_DEFAULT, AsJson, ConsumerAddress, ProducerAddress
from proxy.cli.output import print_line, progress
from proxy.demo.report import DemoReport
from proxy.operate.text import amount
from proxy.process.exit_codes import ExitCode
from pyddmq import ClientError, ClientMisuse, PullRefused, SendRefused


class Spoil(enum.StrEnum):
    """What `--break` shows the checker in the place of the truth."""

    ORDER = "order"
    LOSS = "loss"


def events(
    *,
    count: Annotated[
        int | None, typer.Option("--events", min=1, help="Only the first N events; the default is all.")
    ] = None,
    clients: Annotated[int, typer.Option(min=1, max=64, help="Number of pull clients.")] = 4,
    spoil: Annotated[
        Spoil | None, typer.Option("--break", help="Falsify the checker's input, to show that its checks can fail.")
    ] = None,
    patience: Annotated[float, typer.Option(min=1, help="Seconds of silence until events count as lost.")] = 60.0,
    producer: ProducerAddress = PRODUCER_DEFAULT,
    consumer: ConsumerAddress = CONSUMER_DEFAULT,
    as_json: AsJson = False,
) -> int:
    """Send real events through a running node and check the deliveries.

    8,577 events of permit cases go to topic permits with the case as key. Several clients pull group permits-audit
    and fail one event in twenty on purpose. The check: all arrive, each case in order, failed ones retried in place.
    Exit code 1 when a check fails.
    """
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
        _node_errors(),
        progress("events done", len(messages), unit="messages", enabled=not as_json) as advance,
    ):
        run = DemoRun(messages, options, clock=SystemClock(), progress=lambda _sent, done: advance(done))
        report = run.execute()
    return conclude(report, lambda: _print(report), as_json=as_json)


@contextlib.contextmanager
def _node_errors() -> Iterator[None]:
    """Raise a CliError in the place of a ClientError or ValueError."""
    try:
        yield
    except ValueError as error:
        if isinstance(error, ClientMisuse):
            raise translate(error, option="--producer and --consumer") from error
        raise CliError(str(error), ExitCode.USAGE) from error
    except ClientError as error:
        if error.retriable or not isinstance(error, PullRefused | SendRefused):
            raise translate(error, option="--producer and --consumer") from error
        needs = "The demo needs topic permits and group permits-audit, as the sample configuration has them."
        raise CliError(f"the node refused: {error}. {needs}", refusal_code(error)) from error


def _print(report: DemoReport) -> None:
    print_line(
        f"sent       {amount(report.events, 'event')} in {report.send_seconds:.2f} s, {report.sent_per_second:,.0f}/s"
    )
    rate = f"{report.delivered_per_second:,.0f}/s"
    print_line(f"delivered  {amount(report.deliveries, 'time')} in {report.consume_seconds:.2f} s, {rate}")
    print_line(f"           {report.failures:,} failed on purpose, {amount(report.repeats, 'repeat')}")
    if report.foreign:
        print_line(f"           acked in passing: {amount(report.foreign, 'message')} of other runs or producers")
    print_line(
        f"lag        {amount(report.lag, 'message')}, {report.lag_seconds:.1f} s (age of the oldest unfinished event)"
    )
