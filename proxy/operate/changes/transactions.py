"""Transactions decided by hand through the admin port, and discarded ones made undecided again."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Literal

from broker.transaction.names import TransactionHandle
from broker.transaction.outcomes import End, EndOutcome
from broker.transaction.transactions import State, Transactions
from broker.views import TransactionView
from proxy.access.rules import EVERYTHING, Permission
from proxy.node.node import Node
from proxy.operate.changes.desk import Change, ChangeBody, ChangeRefused
from proxy.operate.changes.groups import need_ready
from proxy.operate.changes.steps import by_owner, run_steps
from proxy.operate.lookups.waiting_in_kafka import WaitingInKafka
from proxy.operate.views.changes import DecisionResult, ResumptionResult

_WANTED = {"commit": State.COMMIT, "rollback": State.ROLLBACK}
_STATUS = {
    End.UNKNOWN_HANDLE: 404,
    End.ALREADY_OTHER: 409,
    End.DISCARDED: 409,
    End.REFUSED: 409,
    End.DISK_FULL: 503,
    End.SEARCH_FAILED: 503,
    End.FAILED: 503,
}


class DecisionBody(ChangeBody, frozen=True):
    """A transaction, by its id or handle, and what is to become of it."""

    id: str
    state: Literal["commit", "rollback"]


class TransactionBody(ChangeBody, frozen=True):
    """A transaction, by its id or handle."""

    id: str


def transaction_changes(node: Node) -> list[Change]:
    """Return the changes of transactions."""
    desk = _Transactions(node)
    # Whose an id is, is known when it was looked for.
    of_any = partial(Change, action=Permission.OPERATE, on=lambda _: (EVERYTHING,))
    return [
        of_any(name="decide_transaction", path="/api/transactions/decide", body=DecisionBody, run=desk.decide),
        of_any(name="resume_transaction", path="/api/transactions/resume", body=TransactionBody, run=desk.resume),
    ]


class _Transactions:
    def __init__(self, node: Node) -> None:
        self._node = node

    @property
    def _in_kafka(self) -> WaitingInKafka:
        return WaitingInKafka(self._node.in_force.config, self._node.parts.kafka.waiting)

    async def decide(self, body: DecisionBody) -> DecisionResult:
        """Commit or roll back; a discarded one is resumed first. Told twice, it is the same."""
        transactions = need_ready(self._node).transactions
        if (named := self._in_kafka.half(body.id)) is not None:
            found = self._in_kafka.found_half(named)
            outcome = _resolved(await by_owner(self._in_kafka.decide(named, body.state)))
            return DecisionResult(
                id=body.id,
                state=body.state,
                already=outcome.end is End.ALREADY_SAME,
                was_discarded=found is not None and found.state == "discarded",
                topic=named.topic,
                group="" if found is None else found.group,
            )
        rows = await _rows(transactions, body.id)
        row = _open(rows)
        resumed = row is not None and row.state == "discarded"
        if row is not None and resumed:
            await _resolution(lambda done: transactions.resume(row.offset, done))
        found = row or rows[0]
        # A resumed half is found by its id: a handle's offsets only save the search.
        handle = str(TransactionHandle(found.offset, found.physical, found.id))
        wanted = _WANTED[body.state]
        outcome = await _resolution(lambda done: transactions.decide(handle, wanted, done))
        return DecisionResult(
            id=body.id,
            state=body.state,
            already=outcome.end is End.ALREADY_SAME,
            was_discarded=resumed,
            topic=rows[0].topic,
            group=rows[0].group,
        )

    async def resume(self, body: TransactionBody) -> ResumptionResult:
        """Make a discarded transaction undecided again, with no checks counted."""
        transactions = need_ready(self._node).transactions
        if (named := self._in_kafka.half(body.id)) is not None:
            _resolved(await by_owner(self._in_kafka.decide(named, "resume")))
            found = self._in_kafka.found_half(named)
            return ResumptionResult(id=body.id, topic=named.topic, group="" if found is None else found.group)
        rows = await _rows(transactions, body.id)
        row = _open(rows)
        if row is None or row.state != "discarded":
            where = "decided" if row is None else "undecided"
            text = f"Transaction {body.id} is {where}, not discarded; only discarded transactions can be resumed."
            raise ChangeRefused(409, text)
        await _resolution(lambda done: transactions.resume(row.offset, done))
        return ResumptionResult(id=body.id, topic=row.topic, group=row.group)


async def _rows(transactions: Transactions, transaction_id: str) -> list[TransactionView]:
    """Records of a transaction. Raises ChangeRefused: there is none."""
    rows = await run_steps(transactions.finding(transaction_id))
    if not rows:
        text = (
            f"Transaction {transaction_id!r} does not exist, or has already ended; `pyddmq transactions "
            "list` lists the pending ones."
        )
        raise ChangeRefused(404, text)
    return rows


async def _resolution(ask: Callable[[Callable[[EndOutcome], None]], None]) -> EndOutcome:
    """Ask, and wait until the answer is durable. Raises ChangeRefused."""
    answer: asyncio.Future[EndOutcome] = asyncio.get_running_loop().create_future()
    ask(answer.set_result)
    return _resolved(await answer)


def _resolved(outcome: EndOutcome) -> EndOutcome:
    """Return an outcome that is what was asked for. Raises ChangeRefused."""
    if not outcome.resolved:
        text = outcome.text[:1].upper() + outcome.text[1:]
        raise ChangeRefused(_STATUS.get(outcome.end, 409), f"{text}.")
    return outcome


def _open(rows: list[TransactionView]) -> TransactionView | None:
    """The record of a transaction that can still be decided; an undecided half before a discarded one."""
    for state in ("undecided", "discarded"):
        for row in rows:
            if row.state == state:
                return row
    return None
