"""`pyddmq demo order`: two riders, one of whom hangs, in order by key and by queue lock, side by side."""

from __future__ import annotations

import tempfile
import uuid
from collections.abc import Sequence
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from broker.runtime.seams import SystemClock
from proxy.cli.demo.demo_checks import conclude, node_errors, print_foreign
from proxy.cli.demo.demo_command import BREAK, Spoil
from proxy.cli.options import CONSUMER_DEFAULT, PRODUCER_DEFAULT, AsJson, ConsumerAddress, ProducerAddress
from proxy.cli.output import print_line, print_table
from proxy.cli.store.store_files import store_errors

if TYPE_CHECKING:
    from proxy.demo.order.story import Moment

_SAID = {"out": "{rider} {step} to {by}", "hangs": "{rider} {step} hangs", "done": "{rider} {step} done"}


def order(
    *,
    spoil: Annotated[Spoil | None, BREAK] = None,
    patience: Annotated[float, typer.Option(min=1, help="Seconds of silence until a step counts as lost.")] = 20.0,
    producer: ProducerAddress = PRODUCER_DEFAULT,
    consumer: ConsumerAddress = CONSUMER_DEFAULT,
    as_json: AsJson = False,
) -> int:
    """Show order by key beside order by queue lock.

    Riders A and B call, have it accepted, and pay. Whoever gets A's accept first hangs: it comes again, A's pay waits
    for it, and B goes on. At the node both riders lie in one queue of topic rides, and group rides-dispatch keeps order
    by key; in this process each lies in a queue of an embedded broker on a temporary store, whose orderly consumer
    keeps order by queue lock. Exit code 1 when a check fails.
    """
    from proxy.demo.order.by_key import ByKey, ByKeyOptions
    from proxy.demo.order.by_queue import ByQueue
    from proxy.demo.order.story import OrderReport, judge
    from proxy.demo.order.story import spoil as spoilt

    run = uuid.uuid4().hex[:12]
    if not as_json:
        print_line(f"run {run}: riders A and B call, accept, pay; A's accept hangs")
    by_key = ByKey(
        ByKeyOptions(producer=producer, consumer=consumer, run=run, patience_seconds=patience), clock=SystemClock()
    )
    by_queue = ByQueue(clock=SystemClock())
    with node_errors("topic rides and group rides-dispatch"):
        by_key.execute()
    with store_errors(Path(tempfile.gettempdir())):
        by_queue.execute()
    kind = spoil.value if spoil is not None else None
    key, queue = spoilt(kind, by_key.story.moments()), spoilt(kind, by_queue.story.moments())
    checks = [*judge("key", key), *judge("queue", queue)]
    report = OrderReport(run=run, key=key, queue=queue, checks=checks, foreign=by_key.foreign)
    if not as_json:
        print_table(
            "what happened",
            ("s", "by key: one queue, two clients (node)", "s", "by queue lock: a queue each (embedded broker)"),
            [(*left, *right) for left, right in zip_longest(_cells(key), _cells(queue), fillvalue=("", ""))],
            right=(0, 2),
        )
    return conclude(report, lambda: print_foreign(report.foreign), as_json=as_json)


def _cells(moments: Sequence[Moment]) -> list[tuple[str, str]]:
    return [(f"{each.seconds:.2f}", _SAID[each.what].format(**each._asdict())) for each in moments]
