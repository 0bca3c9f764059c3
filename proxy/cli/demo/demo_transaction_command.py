"""`pyddmq demo transaction`: ten transactions, decided by checks or, in the end, by an operator."""

from __future__ import annotations

import enum
import uuid
from typing import Annotated, Any

import typer

from broker.runtime.seams import SystemClock
from proxy.cli.admin_client import get, post
from proxy.cli.demo.demo_checks import conclude, node_errors, print_foreign
from proxy.cli.demo.demo_command import BREAK
from proxy.cli.errors import CliError
from proxy.cli.options import (
    ADMIN_DEFAULT,
    CONSUMER_DEFAULT,
    PRODUCER_DEFAULT,
    AdminAddress,
    AsJson,
    ConsumerAddress,
    ProducerAddress,
)
from proxy.cli.output import print_line
from proxy.operate.views.changes import DecisionResult
from proxy.operate.views.waiting import TransactionsAnswer
from proxy.process.exit_codes import ExitCode


class TransactionSpoil(enum.StrEnum):
    """What `--break` shows the checker in the place of the truth."""

    VISIBLE = "visible"
    LOSS = "loss"


def transaction(
    *,
    spoil: Annotated[TransactionSpoil | None, BREAK] = None,
    patience: Annotated[float, typer.Option(min=1, help="Seconds of silence until a message counts as lost.")] = 20.0,
    producer: ProducerAddress = PRODUCER_DEFAULT,
    consumer: ConsumerAddress = CONSUMER_DEFAULT,
    admin: AdminAddress = ADMIN_DEFAULT,
    as_json: AsJson = False,
) -> int:
    """Send ten messages whose transactions never say what became of them, and see what becomes of them.

    By number modulo 3 a check is answered commit, rollback, or still unknown. The four that stay unknown to the limit
    are found among the discarded and decided by hand, through the admin port. Topic transfers, group transfers-audit.
    Exit code 1 when a check fails.
    """
    from proxy.demo.transaction.run import NodeTooPatient, TransactionOptions, TransactionRun

    options = TransactionOptions(
        producer=producer,
        consumer=consumer,
        run=uuid.uuid4().hex[:12],
        transactions=lambda asked: get(admin, "/api/transactions", TransactionsAnswer, asked=asked),
        change=lambda wanted, action: _changed(admin, wanted, action),
        patience_seconds=patience,
        spoil=None if spoil is None else spoil.value,
        tell=(lambda _: None) if as_json else print_line,
    )
    if not as_json:
        print_line(f"run {options.run}: ten messages to topic transfers in transactions")
    try:
        with node_errors("topic transfers and group transfers-audit"):
            report = TransactionRun(options, clock=SystemClock()).execute_run()
    except NodeTooPatient as error:
        raise CliError(f"{error}.", ExitCode.REFUSED) from error

    def show() -> None:
        print_foreign(report.foreign)
        print_line(f"took       {report.seconds:.1f} s")

    return conclude(report, show, as_json=as_json)


def _changed(admin: str, transaction_id: str, action: str) -> str:
    """Decide as `pyddmq transactions` does; returns why the node refused, "" if it did not."""
    body: dict[str, Any] = {"id": transaction_id, "state": action}
    try:
        post(admin, "/api/transactions/decide", body, DecisionResult)
    except CliError as error:
        if error.code not in (ExitCode.REFUSED, ExitCode.NOT_FOUND):
            raise
        return error.text
    return ""
