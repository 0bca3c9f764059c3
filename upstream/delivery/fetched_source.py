"""The source of a low-level generation: nothing is read for it, clients fetch (`upstream.fetch`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NoReturn

from upstream.group_parts import FetchHooks
from upstream.job import GroupQueue, UpstreamJob


class FetchedSource:
    """`upstream.source.Source` without messages, which tells of arrivals. It makes no job, so nobody asks for one's."""

    bodies_come_later = False
    caught_up = True

    def __init__(self, hooks: FetchHooks) -> None:
        self.lag_max: int | None = None
        self._hooks = hooks

    def arrived(self) -> None:
        """Tell who serves fetches."""
        self._hooks.arrived()

    def read(self, count: int) -> list[UpstreamJob]:
        """Give nothing."""
        return []

    def add_group_queue(self, group_queue: GroupQueue) -> None:
        """Who serves fetches looks at the group's queues itself."""

    def close(self) -> None:
        """Nothing is under way."""

    def fetch(self, jobs: Sequence[UpstreamJob], there: Callable[[list[UpstreamJob]], None]) -> list[UpstreamJob]:
        """Of no jobs all bodies are at hand."""
        return list(jobs)

    def body(self, job: UpstreamJob) -> NoReturn:
        """There is no job."""
        raise AssertionError(f"{job} of a low-level topic")

    load = stored_ms = message_id = located = body

    def slices(self, jobs: Sequence[UpstreamJob]) -> NoReturn:
        """There is no job."""
        raise AssertionError(f"{jobs} of a low-level topic")
