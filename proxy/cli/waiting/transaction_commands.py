"""`pyddmq transactions list | show | commit | rollback | resume | stats`: half messages, decided by hand."""

from __future__ import annotations

import enum
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Annotated, Any

import typer
from msgspec import to_builtins
from msgspec.structs import replace

from broker.views import TransactionView
from proxy.cli.admin_client import post
from proxy.cli.errors import CliError
from proxy.cli.options import ADMIN_DEFAULT, AdminAddress, AsJson, StoppedData
from proxy.cli.output import print_json, print_table, print_text, progress
from proxy.cli.store.stopped_queries import Lookup, queries
from proxy.cli.waiting.cancels import named
from proxy.operate.moments import moment_text
from proxy.operate.text import age, amount, printable
from proxy.operate.views.changes import DecisionResult, ResumptionResult
from proxy.operate.views.waiting import TransactionsAnswer
from proxy.process.exit_codes import ExitCode, code_of_all

SELECTED_MAX = 100_000
_PATH = "/api/transactions"
_PAGE = 1_000
_SHOWN = 10


class TransactionFilter(enum.StrEnum):
    """Which transactions are meant."""

    UNDECIDED = "undecided"
    DISCARDED = "discarded"


Ids = Annotated[list[str] | None, typer.Argument(metavar="ID", help="Ids of transactions (UNIQ_KEY).")]
OnlyTopic = Annotated[str | None, typer.Option("--topic", help="Only those of messages for this topic.")]
OnlyGroup = Annotated[str | None, typer.Option("--group", help="Only those of this producer group.")]
State = Annotated[
    TransactionFilter,
    typer.Option("--state", help="`undecided`, or `discarded`: abandoned after too many checks or too long a time."),
]
Everything = Annotated[bool, typer.Option("--all", help="All transactions of the state.")]
Rate = Annotated[float, typer.Option(min=0.1, max=10_000, help="With a selection: maximum per second.")]
Yes = Annotated[bool, typer.Option("--yes", help="Apply to the selection; without it, only show it.")]


def list_transactions(
    *,
    topic: OnlyTopic = None,
    group: OnlyGroup = None,
    state: State = TransactionFilter.UNDECIDED,
    limit: Annotated[int, typer.Option(min=1, max=SELECTED_MAX, help="Maximum number of transactions shown.")] = 100,
    data: StoppedData = None,
    admin: AdminAddress = ADMIN_DEFAULT,
    as_json: AsJson = False,
) -> int:
    """List transactions that are undecided, or were discarded; the oldest first."""
    with queries(admin, data) as lookup:
        answer, found = _selected(lookup, state, topic, group, limit)
    if as_json:
        return print_json(replace(answer, transactions=found))
    _print_transactions(f"{state.value} transactions".capitalize(), found, answer.now_ms)
    if answer.next is not None:
        print_text("there are more; pass a topic, a producer group or a higher --limit")
    return ExitCode.OK


def show(
    *,
    transaction: Annotated[str, typer.Argument(metavar="ID", help="Id of the transaction (UNIQ_KEY).")],
    data: StoppedData = None,
    admin: AdminAddress = ADMIN_DEFAULT,
    as_json: AsJson = False,
) -> int:
    """Show the state of a transaction; `pyddmq messages show ID` shows its body."""
    with queries(admin, data) as lookup:
        answer = lookup(_PATH, {"id": transaction}, TransactionsAnswer)
    if as_json:
        return print_json(answer)
    for each in answer.transactions:
        print_text(f"{each.id}: {_STANDING[each.state]}")
        for name, value in _facts(each, answer.now_ms):
            print_text(printable(value), first=f"  {name:<10} ", then=" " * 13)
    return ExitCode.OK


_STANDING = {
    "undecided": "undecided",
    "discarded": "discarded; commit, rollback or resume it",
    "committed": "committed",
    "rolledBack": "rolled back",
    "resumed": "discarded earlier, then resumed",
    "moved": "stored again, or discarded",
    "decided": "decided long ago",
}


def _facts(each: TransactionView, now_ms: int) -> Iterator[tuple[str, str]]:
    yield "message", f"for topic {each.topic}, queue {each.queue}, {amount(each.bytes, 'byte')} in total"
    yield "group", each.group
    if each.key:
        yield "key", each.key
    yield "stored", f"{moment_text(each.stored_ms)}, {age((now_ms - each.stored_ms) / 1000)} ago"
    yield "checks", f"{each.checks}{', one is being answered' if each.check_out else ''}"
    if each.remark:
        yield "remark", each.remark
    yield "handle", each.handle


def stats(*, data: StoppedData = None, admin: AdminAddress = ADMIN_DEFAULT, as_json: AsJson = False) -> int:
    """Count undecided transactions by topic and producer group, and those that were discarded."""
    with queries(admin, data) as lookup:
        answer = lookup(_PATH, {"limit": 0}, TransactionsAnswer)
    if as_json:
        return print_json(
            {name: value for name, value in to_builtins(answer).items() if name not in ("transactions", "next")}
        )
    rows = [[each.topic, each.group, str(each.count)] for each in answer.pending]
    print_table("Undecided transactions", ["topic", "producer group", "undecided"], rows, right=(2,))
    oldest = answer.oldest_ms
    since = "" if oldest is None else f", the oldest for {age((answer.now_ms - oldest) / 1000)}"
    return print_text(f"{answer.undecided_total:,} undecided{since}; {answer.discarded_total:,} discarded")


def _deciding(action: str, summary: str) -> Callable[..., int]:
    """Make the command that decides transactions one way."""

    def decide(
        *,
        transactions: Ids = None,
        topic: OnlyTopic = None,
        group: OnlyGroup = None,
        state: State = TransactionFilter.UNDECIDED,
        everything: Everything = False,
        rate: Rate = 100,
        yes: Yes = False,
        admin: AdminAddress = ADMIN_DEFAULT,
        as_json: AsJson = False,
    ) -> int:
        chosen = _chosen(admin, transactions, state, topic, group, everything=everything)
        return _change(admin, action, chosen, selected=not transactions, rate=rate, yes=yes, as_json=as_json)

    done = _DONE[action]
    decide.__doc__ = (
        f"{summary} Final.\n\nIds are {done} at once, whatever their state. A selection (--topic, --group, "
        "--state, --all) is only shown without --yes."
    )
    return decide


_DONE = {"commit": "committed", "rollback": "rolled back", "resume": "resumed"}

commit = _deciding("commit", "Commit transactions in their producers' place: their messages are delivered.")
rollback = _deciding(
    "rollback", "Roll transactions back in their producers' place: their messages are never delivered."
)


def resume(
    *,
    transactions: Ids = None,
    topic: OnlyTopic = None,
    group: OnlyGroup = None,
    everything: Everything = False,
    rate: Rate = 100,
    yes: Yes = False,
    admin: AdminAddress = ADMIN_DEFAULT,
    as_json: AsJson = False,
) -> int:
    """Make discarded transactions undecided again: their producers are checked again, from the first check.

    Ids are resumed at once; a selection (--topic, --group, --all) is shown, or resumed with --yes.
    """
    chosen = _chosen(admin, transactions, TransactionFilter.DISCARDED, topic, group, everything=everything)
    return _change(admin, "resume", chosen, selected=not transactions, rate=rate, yes=yes, as_json=as_json)


def _chosen(
    admin: str,
    ids: Sequence[str] | None,
    state: TransactionFilter,
    topic: str | None,
    group: str | None,
    *,
    everything: bool,
) -> Sequence[str | TransactionView]:
    """Return the transactions that are meant: the ids named, or a selection with all that is known of each."""
    selection = everything or topic is not None or group is not None
    if ids:
        if selection:
            raise CliError("pass ids, or a selection, not both", ExitCode.USAGE)
        return [str(each["id"]) for each in named(ids, None)]
    if not selection:
        raise CliError("select transactions: ids, --topic, --group or --all", ExitCode.USAGE)
    with queries(admin, None) as lookup:
        answer, found = _selected(lookup, state, topic, group, SELECTED_MAX)
    if answer.next is not None:
        text = f"the selection has more than {SELECTED_MAX:,} transactions; narrow it with --topic or --group"
        raise CliError(text, ExitCode.USAGE)
    return found


def _selected(
    lookup: Lookup, state: TransactionFilter, topic: str | None, group: str | None, count_max: int
) -> tuple[TransactionsAnswer, list[TransactionView]]:
    """Return the last answer and the transactions of all pages, up to `count_max`."""
    parameters = {"state": state.value, "topic": topic, "group": group}
    found: list[TransactionView] = []
    start = 0
    while True:
        answer = lookup(
            _PATH, {**parameters, "from": start, "limit": min(_PAGE, count_max - len(found))}, TransactionsAnswer
        )
        found += answer.transactions
        if answer.next is None or len(found) >= count_max:
            return answer, found
        start = answer.next


def _change(
    admin: str,
    action: str,
    chosen: Sequence[str | TransactionView],
    *,
    selected: bool,
    rate: float,
    yes: bool,
    as_json: bool,
) -> int:
    """Do something to transactions one by one, and say what became of each."""
    if selected and not yes:
        return _shown(action, [each for each in chosen if not isinstance(each, str)], as_json=as_json)
    codes: Counter[ExitCode] = Counter()
    pause = threading.Event()
    with progress(_DONE[action], len(chosen), unit="messages", enabled=selected and not as_json) as advance:
        for count, each in enumerate(chosen, 1):
            if count > 1 and selected:
                pause.wait(1 / rate)
            result, code = _decide(admin, action, each if isinstance(each, str) else each.id)
            codes[code] += 1
            if as_json:
                print_json(result)
            elif not selected or result["refused"] is not None:
                print_text(_sentence(action, result))
            advance(count)
    if selected and not as_json:
        done = codes.pop(ExitCode.OK, 0)
        print_text(f"{amount(done, 'transaction')} {_DONE[action]}, {codes.total():,} refused")
    return code_of_all(codes)


def _decide(admin: str, action: str, transaction: str) -> tuple[dict[str, Any], ExitCode]:
    answer: ResumptionResult
    try:
        if action == "resume":
            answer = post(admin, f"{_PATH}/resume", {"id": transaction}, ResumptionResult)
        else:
            answer = post(admin, f"{_PATH}/decide", {"id": transaction, "state": action}, DecisionResult)
    except CliError as error:
        if error.code not in (ExitCode.REFUSED, ExitCode.NOT_FOUND):
            raise
        return {"id": transaction, "refused": error.text}, error.code
    return {**to_builtins(answer), "refused": None}, ExitCode.OK


def _sentence(action: str, result: dict[str, Any]) -> str:
    name = printable(result["id"])
    if result["refused"] is not None:
        return f"{name}: {printable(result['refused'])}"
    before = (
        "it was before" if result.get("already") else "it was discarded before" if result.get("wasDiscarded") else ""
    )
    return f"{name}: {_DONE[action]}{f' ({before})' if before else ''}"


def _shown(action: str, found: Sequence[TransactionView], *, as_json: bool) -> int:
    """Show what would be changed."""
    if as_json:
        for each in found:
            print_json({"id": each.id, "topic": each.topic, "group": each.group, "refused": "only shown"})
        return ExitCode.OK
    newest = max((each.stored_ms for each in found), default=0)
    _print_transactions("Selected", found[:_SHOWN], newest)
    more = f", {_SHOWN} of them shown" if len(found) > _SHOWN else ""
    return print_text(
        f"nothing was changed: {amount(len(found), 'transaction')} would be {_DONE[action]}{more}; pass --yes to apply"
    )


def _print_transactions(title: str, found: Sequence[TransactionView], now_ms: int) -> None:
    rows = [
        [
            each.id,
            each.topic,
            each.group,
            each.key,
            moment_text(each.stored_ms),
            age(max(0, now_ms - each.stored_ms) / 1000),
            str(each.checks),
            each.remark,
        ]
        for each in found
    ]
    columns = ["id", "topic", "producer group", "key", "stored", "age", "checks", "remark"]
    print_table(title, columns, rows, right=(5, 6))
