"""How many requests leave per second: a bucket of tokens whose time is handed in, and a line before it (R58, R61).

A tenth of a second's worth gathers, and a new bucket is empty: a reload gives no burst. Who finds no token is in
line; one timer serves the line, looks at the rate in force each time, and waits a second at most, so that a changed
rate holds for those who stand there already.

Slow-down (R58): a reply that asks for it sets a count to the rate, or adds one where the count runs already; each
request while it runs takes one off and costs ten tokens. Without a rate there is nothing to slow down.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

SLOW_COST = 10
GATHERED_SECONDS = 0.1
LOOK_SECONDS_MAX = 1.0


class Pace:
    """The rate of one subscription's requests.

    Attributes:
        slow: How many requests still cost ten tokens.
        held: How many had to stand in line, since the start.
        waiting_since: Monotonic seconds since when requests wait in line without a break; None while none does.
    """

    def __init__(self, rate: Callable[[], float | None], monotonic: Callable[[], float]) -> None:
        """Start empty.

        Args:
            rate: Requests per second in force; None for no limit.
            monotonic: Seconds.
        """
        self._rate = rate
        self._monotonic = monotonic
        self._tokens = 0.0
        self._filled = monotonic()
        self._line: deque[asyncio.Future[bool]] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._over = False
        self.slow = 0
        self.held = 0
        self.waiting_since: float | None = None

    @property
    def waiting(self) -> int:
        """How many stand in line."""
        return len(self._line)

    def slow_down(self) -> bool:
        """Take note of a reply that asks for it; returns whether there is a rate to slow."""
        rate = self._rate()
        if rate is None:
            return False
        self.slow = self.slow + 1 if self.slow > 0 else max(1, int(rate))
        return True

    def try_take(self) -> bool:
        """Whether a request may leave at once; its tokens are then spent."""
        return not self._line and self._spend() == 0.0

    async def take(self) -> bool:
        """Stand in line until a request may leave; False: the subscription ends, it may not."""
        if self._over:
            return False
        turn: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self.held += 1
        if not self._line:
            self.waiting_since = self._monotonic()
        self._line.append(turn)
        if self._timer is None:
            self._serve()
        return await turn

    def end(self) -> None:
        """Refuse all requests in line, and all later ones."""
        self._over = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self.waiting_since = None
        while self._line:
            turn = self._line.popleft()
            if not turn.done():
                turn.set_result(False)

    def _serve(self) -> None:
        """Let the first of the line go while there are tokens; come again when there may be."""
        self._timer = None
        while self._line:
            if self._line[0].done():  # its call was cancelled
                self._line.popleft()
                continue
            wait = self._spend()
            if wait > 0.0:
                self._timer = asyncio.get_running_loop().call_later(min(wait, LOOK_SECONDS_MAX), self._serve)
                return
            self._line.popleft().set_result(True)
        self.waiting_since = None

    def _spend(self) -> float:
        """Spend one request's tokens and return 0, or return the seconds until they are there."""
        rate = self._rate()
        if rate is None:
            return 0.0
        cost = SLOW_COST if self.slow > 0 else 1
        now = self._monotonic()
        most = max(float(cost), rate * GATHERED_SECONDS)
        self._tokens = min(most, self._tokens + (now - self._filled) * rate)
        self._filled = now
        # Tokens are sums of fractions: what a wait of exactly the right length brought must be enough.
        if self._tokens + 1e-6 < cost:
            return (cost - self._tokens) / rate
        self._tokens -= cost
        self.slow = max(0, self.slow - 1)
        return 0.0
