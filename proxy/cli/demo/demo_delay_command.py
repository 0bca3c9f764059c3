"""`pyddmq demo delay`: a level, timers, a loop and cancels through a running node, and a verdict."""

from __future__ import annotations

import enum
import uuid
from typing import Annotated

import typer

from broker.runtime.seams import SystemClock
from proxy.cli.demo.demo_checks import conclude, node_errors, print_foreign
from proxy.cli.demo.demo_command import BREAK
from proxy.cli.options import CONSUMER_DEFAULT, PRODUCER_DEFAULT, AsJson, ConsumerAddress, ProducerAddress
from proxy.cli.output import print_line
from proxy.operate.text import amount


class Spoil(enum.StrEnum):
    """What `--break` shows the checker in the place of the truth."""

    EARLY = "early"
    CANCEL = "cancel"


def delay(
    *,
    spoil: Annotated[Spoil | None, BREAK] = None,
    patience: Annotated[float, typer.Option(min=1, help="Seconds after which what is due counts as lost.")] = 30.0,
    producer: ProducerAddress = PRODUCER_DEFAULT,
    consumer: ConsumerAddress = CONSUMER_DEFAULT,
    as_json: AsJson = False,
) -> int:
    """Send messages for later through a running node and check when they come.

    A delay level, timers to the millisecond, a loop, and cancels, on topic permits and group permits-audit. It takes
    about fifteen seconds. Exit code 1 when a check fails.
    """
    from proxy.demo.delay_run import DelayOptions, DelayRun

    options = DelayOptions(
        producer=producer,
        consumer=consumer,
        run=uuid.uuid4().hex[:12],
        spoil=spoil.value if spoil is not None else None,
        patience_seconds=patience,
    )
    if not as_json:
        print_line(f"run {options.run}, on topic permits and group permits-audit:")
    told = (lambda _: None) if as_json else (lambda text: print_line(f"  {text}"))
    with node_errors("topic permits and group permits-audit"):
        report = DelayRun(options, clock=SystemClock(), told=told).execute()

    def show() -> None:
        times = amount(report.deliveries, "delivery")
        print_line(f"{times}, {report.late_ms_median} ms after the moment (median), {report.late_ms_max} ms at most")
        print_foreign(report.foreign)

    return conclude(report, show, as_json=as_json)
