"""`pyddmq demo`: real events through a running node, and a verdict."""

from __future__ import annotations

import enum
import uuid
from typing import Annotated

import typer

from broker.runtime.seams import SystemClock
from proxy.cli.demo.demo_checks import conclude, node_errors, print_foreign
from proxy.cli.options import CONSUMER_DEFAULT, PRODUCER_DEFAULT, AsJson, ConsumerAddress, ProducerAddress
from proxy.cli.output import print_line, progress
from proxy.demo.report import Report
from proxy.operate.text import amount

BREAK = typer.Option("--break", help="Spoil what the checker sees, to show that its checks can fail.")


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
    spoil: Annotated[Spoil | None, BREAK] = None,
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
    return conclude(report, lambda: _print(report), as_json=as_json)


def _print(report: Report) -> None:
    print_line(
        f"sent       {amount(report.events, 'event')} in {report.send_seconds:.2f} s, {report.sent_per_second:,.0f}/s"
    )
    rate = f"{report.delivered_per_second:,.0f}/s"
    print_line(f"delivered  {amount(report.deliveries, 'time')} in {report.consume_seconds:.2f} s, {rate}")
    print_line(f"           {report.failures:,} failed on purpose, {amount(report.repeats, 'repeat')}")
    print_foreign(report.foreign, " " * 11)
    print_line(
        f"lag        {amount(report.lag, 'message')}, {report.lag_seconds:.1f} s (age of the oldest event not done)"
    )
