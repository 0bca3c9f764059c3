"""The connection between one client and the cluster: questions and answers, late, held up, or lost."""

from __future__ import annotations

import contextvars
from collections.abc import Callable
from typing import Any, Protocol

from upstream.kafka.link import KafkaFailure

DELAY_SECONDS_MAX = 0.02

Answer = Callable[..., None]
"""Called at the cluster with a call for the client's side and its arguments."""
Failed = Callable[[KafkaFailure], None]


class Side(Protocol):
    """The cluster, as links see it."""

    down: bool

    def after(self, seconds: float, call: Callable[..., Any], *arguments: Any) -> None:
        """Call in the cluster's own context."""

    def delay(self) -> float:
        """How long a message is under way."""

    def patience(self) -> float:
        """How long a client of a cluster that is down waits before it says so."""

    def in_here(self, context: contextvars.Context, call: Callable[..., Any], *arguments: Any) -> None:
        """Call in a client's context, in a later turn."""

    def chance(self, share: float) -> bool:
        """Draw."""

    def now(self) -> float:
        """Seconds, monotonic."""


class _Asked:
    """A question under way.

    Attributes:
        over: It was answered, or has failed.
        put: The cluster has heard it.
    """

    __slots__ = ("failed", "over", "put", "request")

    def __init__(self, request: Callable[[Answer], None], failed: Failed) -> None:
        self.request = request
        self.failed = failed
        self.over = False
        self.put = False


class SimLink:
    """One client's.

    Attributes:
        is_cut: Nothing comes through; what is under way waits.
    """

    def __init__(self, side: Side) -> None:
        """Made in the context of the process whose client it is."""
        self._side = side
        self._context = contextvars.copy_context()
        self._asked: dict[_Asked, None] = {}
        self._held: list[Callable[[], None]] = []
        self._there = self._back = 0.0
        self.is_cut = False

    @property
    def is_open(self) -> bool:
        """Whether something comes through."""
        return not self.is_cut and not self._side.down

    def ask(self, request: Callable[[Answer], None], failed: Failed) -> None:
        """Put a question.

        Args:
            request: Called at the cluster, with what takes the answer: now or later, once.
            failed: Called here where no answer will come: whether the question was put is unknown.
        """
        asked = _Asked(request, failed)
        self._asked[asked] = None
        self._there = self._arrive_at(self._there, lambda: self._arrive(asked))

    def report(self, call: Callable[..., Any], *arguments: Any) -> None:
        """Call something on the client's side, as the cluster tells it; it may be lost."""

        def arrive() -> None:
            if self.is_cut:
                self._held.append(arrive)
            elif not self._side.down:
                self._side.in_here(self._context, call, *arguments)

        self._back = self._arrive_at(self._back, arrive)

    def cut(self) -> None:
        """Let nothing through."""
        self.is_cut = True

    def heal(self) -> None:
        """Let everything through again, first what was held up."""
        self.is_cut = False
        held, self._held = self._held, []
        for call in held:
            call()

    def reset(self) -> None:
        """Break all connections: what is under way is lost, now and then after it was heard."""
        self._held.clear()
        asked, self._asked = list(self._asked), {}
        for each in asked:
            if not each.put and not self._side.down and self._side.chance(0.5):
                self._put(each)
            self._fail(each)

    def _arrive_at(self, last: float, call: Callable[[], None]) -> float:
        now = self._side.now()
        at = max(last, now + self._side.delay())
        self._side.after(at - now, call)
        return at

    def _arrive(self, asked: _Asked) -> None:
        if asked.over:
            return
        if self._side.down:
            self._side.after(self._side.patience(), self._fail, asked)
        elif self.is_cut:
            self._held.append(lambda: self._arrive(asked))
        else:
            self._put(asked)

    def _put(self, asked: _Asked) -> None:
        asked.put = True

        def answer(call: Callable[..., Any], *arguments: Any) -> None:
            def arrive() -> None:
                if asked.over:
                    return
                if self._side.down:
                    self._fail(asked)
                elif self.is_cut:
                    self._held.append(arrive)
                else:
                    self._end(asked)
                    self._side.in_here(self._context, call, *arguments)

            self._back = self._arrive_at(self._back, arrive)

        asked.request(answer)

    def _end(self, asked: _Asked) -> None:
        asked.over = True
        self._asked.pop(asked, None)

    def _fail(self, asked: _Asked) -> None:
        if not asked.over:
            self._end(asked)
            failure = KafkaFailure("TRANSPORT", "the cluster cannot be reached", unknown=True)
            self._side.in_here(self._context, asked.failed, failure)
