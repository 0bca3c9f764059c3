"""The export of spans: one request at a time, and none at once after a failure."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from random import Random

from broker.runtime.bundle import runtime_of
from conf.sections.tracing import TracingConfig
from proxy.recording.trace_export import BATCH_SPANS, TraceExport
from pyddmq.testing import SimDisk
from pyddmq.testing.manual_time import ManualClock, ManualScheduler
from tests.fakes.virtual_threads import VirtualThreads
from upstream.figures.tracing import SPANS, TraceContext, TraceSpan, Tracing


def test_batches_follow_each_other_while_the_collector_takes_them_and_wait_after_a_failure() -> None:
    """What is taken leads to the next request at once; what is not, to none before the next period."""
    clock = ManualClock()
    scheduler = ManualScheduler(clock)
    runtime = runtime_of(SimDisk(), clock, scheduler=scheduler, random=Random(1))
    tracing = Tracing(TracingConfig.model_validate({"endpoint": "http://127.0.0.1:4318"}), runtime)
    sent: list[int] = []
    taken = True

    def send(spans: Sequence[TraceSpan]) -> bool:
        sent.append(len(spans))
        return taken

    export = TraceExport(tracing, send, VirtualThreads(scheduler, lambda: 0.1), runtime)
    export.export()
    assert not sent
    for _ in range(3 * BATCH_SPANS):
        tracing.add(TraceSpan("x", "internal", TraceContext(1, 0, True), 1, 0, 0, {}))
    export.export()
    export.export()
    assert sent == [BATCH_SPANS]
    scheduler.advance(0.15)
    assert sent == [BATCH_SPANS] * 2
    taken = False
    scheduler.advance(0.1)
    assert sent == [BATCH_SPANS] * 3
    for _ in range(2 * BATCH_SPANS):
        tracing.add(TraceSpan("x", "internal", TraceContext(1, 0, True), 1, 0, 0, {}))
    scheduler.advance(5)
    assert len(sent) == 3
    export.export()
    assert len(sent) == 4
    scheduler.advance(5)
    assert len(sent) == 4
    count = runtime.metrics.counter
    assert (count(SPANS, "sent").value, count(SPANS, "lost").value) == (2 * BATCH_SPANS, 2 * BATCH_SPANS)


def test_batch_for_which_there_is_no_thread_is_lost_and_the_next_one_sent() -> None:
    """A moment without threads ends no export."""

    class Threads(VirtualThreads):
        none = True

        def run(self, work: Callable[[], object], done: Callable[[object], None]) -> None:
            if self.none:
                raise RuntimeError("can't start new thread")
            super().run(work, done)

    def send(spans: Sequence[TraceSpan]) -> bool:
        sent.append(len(spans))
        return True

    clock = ManualClock()
    scheduler = ManualScheduler(clock)
    runtime = runtime_of(SimDisk(), clock, scheduler=scheduler, random=Random(1))
    tracing = Tracing(TracingConfig.model_validate({"endpoint": "http://127.0.0.1:4318"}), runtime)
    sent: list[int] = []
    threads = Threads(scheduler)
    export = TraceExport(tracing, send, threads, runtime)
    for threads.none in (True, False):
        tracing.add(TraceSpan("x", "internal", TraceContext(1, 0, True), 1, 0, 0, {}))
        with contextlib.suppress(RuntimeError):
            export.export()
        scheduler.advance(1)
    assert sent == [1]
    assert runtime.metrics.counter(SPANS, "lost").value == 1
