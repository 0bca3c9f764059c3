"""What waits: timers and loops, delay levels, and transactions; each can be searched, and ended by hand."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from datetime import timedelta
from operator import add
from typing import cast
from urllib.parse import urlencode

from msgspec import UNSET
from msgspec.structs import replace

from broker.format.numbers import whole_number
from broker.query import NotFound, QueryRefused
from broker.scheduled.delay.listing import due_counts
from broker.transaction.listing import next_checks
from broker.views import DelayedMessage, DelayLevelView, TimerView, TransactionView, View
from proxy.admin.console.buttons import Button
from proxy.admin.console.calls import PageCall
from proxy.operate.attention.kinds import command
from proxy.operate.lookups import timers, transactions
from proxy.operate.text import amount
from proxy.operate.views.waiting import DelaysAnswer, TimerAnswer, TimersAnswer, TransactionsAnswer

KINDS = ("timers", "delays", "transactions")
PARAMETERS = ("kind", "topic", "from", "to", "id", "level", "state", "cursor")
ROWS = 100
BOUNDS_MS = tuple(
    (name, round(timedelta(**span).total_seconds() * 1000))
    for name, span in (
        ("1 min", {"minutes": 1}),
        ("10 min", {"minutes": 10}),
        ("1 h", {"hours": 1}),
        ("6 h", {"hours": 6}),
        ("1 day", {"days": 1}),
        ("7 days", {"days": 7}),
    )
)
"""Ends of the bars of the histogram, from now on."""


class WaitingRow(View, frozen=True, kw_only=True):
    """Something that waits.

    Attributes:
        timer: A timer, or null.
        delayed: A message of a delay level, or null.
        half: A transaction, or null.
        buttons: What the viewer may do.
    """

    timer: TimerView | None = None
    delayed: DelayedMessage | None = None
    half: TransactionView | None = None
    buttons: Sequence[Button] = ()


class Bar(View, frozen=True, kw_only=True):
    """A bar of the histogram.

    Attributes:
        name: Until when, in words.
        count: Messages that fall due until then, and after the bar before.
        share: Of the highest bar, 0.0 to 1.0.
    """

    name: str
    count: int
    share: float


class PartitionRow(View, frozen=True, kw_only=True):
    """A partition of a waiting topic in Kafka, as its owner reports it every second.

    Attributes:
        cluster: Its cluster.
        partition: Its number.
        node: The owner that reported last; the finding `kafka_waiting` names partitions without one.
        state: As the owner has it: `fencing`, `reading` or `serving`.
        pending: Messages that wait.
        undecided: Halves among them.
        late_ms: How long the first message is overdue.
        takeover_ms: How long the last takeover took.
    """

    cluster: str
    partition: int
    node: str
    state: str
    pending: int
    undecided: int
    late_ms: int
    takeover_ms: int


class WaitingPageView(View, frozen=True, kw_only=True):
    """What waits.

    Attributes:
        now_ms: Now, by the node's wall clock.
        kind: `timers`, `delays` or `transactions`.
        given: What the filter has.
        problem: Why nothing can be shown; "" for none.
        timers: Figures of all timers; null on the other tabs.
        bars: When messages fall due, or halves are checked next.
        bars_of: What the bars count, in words.
        one: What became of the timer that was looked for; null for none.
        levels: Delay levels.
        halves: Figures of transactions; null on the other tabs.
        in_kafka: Partitions of waiting topics, over all nodes.
        rows: A page of what waits.
        buttons: Changes of all that the page lists.
        more: The query of the next page; "" after the last one.
    """

    now_ms: int
    kind: str
    given: Mapping[str, str] = {}
    problem: str = ""
    timers: TimersAnswer | None = None
    bars: Sequence[Bar] = ()
    bars_of: str = ""
    one: TimerAnswer | None = None
    levels: Sequence[DelayLevelView] = ()
    halves: TransactionsAnswer | None = None
    in_kafka: Sequence[PartitionRow] = ()
    rows: Sequence[WaitingRow] = ()
    buttons: Sequence[Button] = ()
    more: str = ""


async def waiting(call: PageCall) -> WaitingPageView:
    """Return what the page shows."""
    kind = call.query.get("kind", KINDS[0])
    given = {name: value for name in PARAMETERS[1:-1] if (value := call.query.get(name, "").strip())}
    view = WaitingPageView(
        now_ms=call.node.clock.wall_ms(),
        kind=kind if kind in KINDS else KINDS[0],
        given=given,
        in_kafka=[
            PartitionRow(
                cluster=cluster,
                partition=each.partition,
                node=each.node,
                state=each.state,
                pending=each.pending,
                undecided=each.undecided,
                late_ms=each.late_ms,
                takeover_ms=each.takeover_ms,
            )
            for cluster, statuses in call.node.waiting_in_kafka.partitions().items()
            for each in statuses
        ],
    )
    look = {"timers": _timers, "delays": _delays, "transactions": _transactions}[view.kind]
    try:
        found = await look(call, view)
        return found if found.problem or found.one is not None else await _with_bars(call, found)
    except NotFound as error:
        return replace(view, problem=f"Not found: {error}.")
    except (QueryRefused, ValueError) as error:
        return replace(view, problem=f"The filter is not valid: {str(error).rstrip('.')}.")


async def _with_bars(call: PageCall, view: WaitingPageView) -> WaitingPageView:
    """Count what waits by due time, transactions by their next check: in the store, or of a topic in Kafka there."""
    node, topic = call.node, view.given.get("topic", "")
    level = whole_number(view.given.get("level"), 3)
    ends_ms = [view.now_ms + end_ms for _, end_ms in BOUNDS_MS]
    stored: Generator[None, None, list[int]] | None = None
    in_kafka = node.in_kafka.cluster_of(topic) is not None
    if in_kafka:
        pass
    elif view.kind == "timers" and (opened := node.timers()) is not None:
        stored = timers.due_counts(opened, ends_ms)
    elif view.kind == "delays" and (levels := node.delays()) is not None:
        stored = due_counts(levels, ends_ms, level=level)
    elif view.kind == "transactions" and (halves := node.transactions()) is not None:
        timeout_ms = halves.settings.timeout_ms
        stored = next_checks(halves.halves, ends_ms, timeout_ms=timeout_ms, now_ms=view.now_ms)
    counts = await call.search(
        node.waiting_in_kafka.due_counts(
            ends_ms,
            halves=view.kind == "transactions",
            topic=topic,
            level=(level or 0) if view.kind == "delays" else -1,
        )
    )
    if stored is not None:
        counts = list(map(add, counts, await call.search(stored)))
    names = [f"within {BOUNDS_MS[0][0]}", *(f"to {name}" for name, _ in BOUNDS_MS[1:]), "later"]
    most = max(counts) or 1
    return replace(
        view,
        bars=[Bar(name=name, count=count, share=count / most) for name, count in zip(names, counts, strict=True)],
        bars_of=(f"topic {topic}" if in_kafka else "all topics")
        + (", in Kafka the partitions of this node" if view.in_kafka else ""),
    )


def _asked(call: PageCall, view: WaitingPageView, *names: str) -> dict[str, str]:
    asked = {name: view.given[name] for name in names if name in view.given}
    return {**asked, "cursor": call.query["cursor"]} if "cursor" in call.query else asked


def _next(view: WaitingPageView, cursor: object) -> str:
    return urlencode({"kind": view.kind, **view.given, "cursor": cursor}) if isinstance(cursor, str | int) else ""


async def _timers(call: PageCall, view: WaitingPageView) -> WaitingPageView:
    opened, store = call.node.timers(), call.node.searchable()
    if opened is None or store is None:
        return replace(view, problem="The store is opening; try again when /readyz reports ready.")
    one = None
    if "id" in view.given:
        asked = {name: view.given[name] for name in ("id", "topic") if name in view.given}
        one = await call.search(timers.show(store, asked, broker_name=call.node.broker_name, now_ms=view.now_ms))
    given = _asked(call, view, "topic", "from", "to")
    topic = given.get("topic", "")
    steps = call.node.waiting_in_kafka.timers(topic, given, limit=ROWS, now_ms=view.now_ms)
    if steps is None:
        steps = timers.search(opened, given, limit=ROWS, now_ms=view.now_ms)
    found = await call.search(steps)
    rows = [] if one is not None else [_timer(call, each) for each in found.timers]
    return replace(
        view,
        timers=replace(found, timers=()),
        one=one,
        rows=rows,
        buttons=cancel_all(rows, "timers", "timers", "timer"),
        more="" if one is not None else _next(view, found.cursor),
    )


def _timer(call: PageCall, timer: TimerView) -> WaitingRow:
    may = call.may_operate(timer.topic)
    return WaitingRow(timer=timer, buttons=timer_buttons(timer, call.node.clock.wall_ms()) if may else [])


def timer_buttons(timer: TimerView, now_ms: int) -> list[Button]:
    """Return the buttons that cancel a timer, deliver it now, or move it."""
    name = timer.delay_id or timer.id
    place = (name, "--topic", timer.topic)
    at = {
        "name": "deliverAtMs",
        "label": "New time (this browser's time zone)",
        "type": "datetime-local",
        "option": "--at",
    }
    ends = "The message is not delivered." if timer.loop is None else "The loop ends; no more messages are delivered."
    return [
        Button(
            label="Cancel timer",
            path="/api/timers/cancel",
            body={"timers": [{"id": name, "topic": timer.topic}]},
            command=command("timers", "cancel", *place),
            text=ends,
            tone="bad",
        ),
        Button(
            label="Deliver now",
            path="/api/timers/reschedule",
            body={"id": name, "topic": timer.topic, "deliverAtMs": now_ms},
            command=command("timers", "reschedule", *place, "--at", "in 0s"),
            text="The message is delivered at once.",
        ),
        Button(
            label="Move",
            path="/api/timers/reschedule",
            body={"id": name, "topic": timer.topic},
            command=command("timers", "reschedule", *place),
            text="The message gets another due time, and a new id.",
            fields=[at],
        ),
    ]


def cancel_all(rows: Sequence[WaitingRow], kind: str, field: str, noun: str) -> list[Button]:
    """Return the button that cancels all that the page lists and the viewer may cancel, if these are several."""
    cancels = [each for row in rows for each in row.buttons if each.path.endswith("/cancel")]
    if len(cancels) < 2:
        return []
    named = [one for each in cancels for one in cast(Sequence[Mapping[str, str]], each.body[field])]
    these = amount(len(named), noun)
    return [
        Button(
            label=f"Cancel these {these}",
            path=cancels[0].path,
            body={field: named},
            command=command(kind, "cancel", *(each["id"] for each in named[:3])) + (" …" if len(named) > 3 else ""),
            text=f"Cancels the {these} that this page lists. Their messages are not delivered.",
            tone="bad",
        )
    ]


async def _delays(call: PageCall, view: WaitingPageView) -> WaitingPageView:
    asked = {**_asked(call, view, "topic", "level"), "messages": "true"}
    search = call.node.waiting_in_kafka.delays
    found: DelaysAnswer = await call.search(search(call.node.delays(), asked, limit=ROWS, now_ms=view.now_ms))
    rows = [] if found.messages is UNSET else [_delayed(call, each) for each in found.messages]
    return replace(
        view,
        levels=found.levels,
        rows=rows,
        buttons=cancel_all(rows, "delays", "messages", "message"),
        more=_next(view, found.cursor),
    )


def _delayed(call: PageCall, message: DelayedMessage) -> WaitingRow:
    if not call.may_operate(message.topic):
        return WaitingRow(delayed=message)
    cancel = Button(
        label="Cancel message",
        path="/api/delays/cancel",
        body={"messages": [{"id": message.id, "topic": message.topic}]},
        command=command("delays", "cancel", message.id, "--topic", message.topic),
        text="The message is not delivered.",
        tone="bad",
    )
    return WaitingRow(delayed=message, buttons=[cancel])


async def _transactions(call: PageCall, view: WaitingPageView) -> WaitingPageView:
    query = {name: view.given[name] for name in ("topic", "state", "id") if name in view.given}
    if "cursor" in call.query:
        query["from"] = call.query["cursor"]
    asked = transactions.TransactionQuery.of(query, limit=ROWS)
    found = call.node.waiting_in_kafka.transactions(asked, view.now_ms)
    if found is None:
        found = await call.search(transactions.search(call.node.transactions(), asked, now_ms=view.now_ms))
    return replace(
        view,
        halves=replace(found, transactions=()),
        rows=[_half(call, each) for each in found.transactions],
        more=_next(view, found.next),
    )


def _half(call: PageCall, half: TransactionView) -> WaitingRow:
    if not call.may_operate("*"):
        return WaitingRow(half=half)
    if half.state == "discarded":
        resume = Button(
            label="Resume",
            path="/api/transactions/resume",
            body={"id": half.id},
            command=command("transactions", "resume", half.id),
            text="The transaction is undecided again, and its producers are checked from the first check on.",
        )
        return WaitingRow(half=half, buttons=[resume])
    if half.state != "undecided":
        return WaitingRow(half=half)
    texts = {"commit": "The message is delivered. Final.", "rollback": "The message is never delivered. Final."}
    return WaitingRow(
        half=half,
        buttons=[
            Button(
                label=state.capitalize(),
                path="/api/transactions/decide",
                body={"id": half.id, "state": state},
                command=command("transactions", state, half.id),
                text=text,
                tone="bad",
            )
            for state, text in texts.items()
        ],
    )
