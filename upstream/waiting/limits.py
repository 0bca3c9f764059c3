"""Permits and rate of one subscription.

Both belong to the subscription object alone, so a job of a stopped generation can never release into its
successor (W43). A rate token is taken together with a permit or not at all (W42).
"""

from __future__ import annotations

from broker.runtime.seams import Clock


class TokenBucket:
    """maxTps or totalMaxTps as a rate: at most one second's worth of tokens gathers (R66).

    Attributes:
        rate: Messages per second; None for no limit.
        held: How often messages that could have gone had to wait for it.
    """

    __slots__ = ("_burst", "_clock", "_filled", "_tokens", "held", "rate")

    def __init__(self, rate: float | None, clock: Clock) -> None:
        """Start full.

        Args:
            rate: Messages per second, above 0; None for no limit.
            clock: Its monotonic part refills.
        """
        self._clock = clock
        self.rate: float | None = None
        self.held = 0
        self._tokens = 0.0
        self._filled = clock.monotonic()
        self.configure(rate, full=True)

    def configure(self, rate: float | None, *, full: bool = False) -> None:
        """Change the rate; tokens already there stay, up to the new burst."""
        full = full or self.rate is None
        if not full:
            self.available()
        self.rate = rate
        self._burst = max(1.0, rate or 0.0)
        self._tokens = self._burst if full or rate is None else min(self._tokens, self._burst)

    def available(self) -> int | None:
        """Whole tokens there now, or None for no limit."""
        rate = self.rate
        if rate is None:
            return None
        now = self._clock.monotonic()
        self._tokens = min(self._burst, self._tokens + (now - self._filled) * rate)
        self._filled = now
        # Tokens are sums of fractions: what a wait of exactly `wait_seconds` brought must count as whole.
        return int(self._tokens + 1e-6)

    def wait_at(self, now: float) -> float:
        """Return the seconds until there is a whole token, as of a monotonic moment; 0.0 when there is one."""
        rate = self.rate
        if rate is None:
            return 0.0
        tokens = self._tokens + (now - self._filled) * rate
        if tokens > self._burst:  # noqa: PLR1730 - the call of `min` costs more than all of this
            tokens = self._burst
        self._tokens, self._filled = tokens, now
        return 0.0 if tokens + 1e-6 >= 1.0 else (1.0 - tokens) / rate

    def take(self, count: int) -> None:
        """Spend `count` tokens, which `available` reported."""
        if self.rate is not None:
            self._tokens -= count

    def wait_seconds(self) -> float:
        """Seconds until the next whole token, as of the last `available`."""
        return 0.0 if self.rate is None else max(0.0, (1.0 - self._tokens) / self.rate)


class Permits:
    """The concurrency of a subscription: jobs past the order gate and unfinished (R67)."""

    __slots__ = ("maximum", "used")

    def __init__(self, maximum: int) -> None:
        self.maximum = maximum
        self.used = 0

    @property
    def free(self) -> int:
        """Permits that may be taken; 0 also while a lowered maximum is exceeded."""
        free = self.maximum - self.used
        return free if free > 0 else 0

    def release(self, count: int) -> None:
        """Give `count` permits back; more than were taken is a bug (W36)."""
        self.used -= count
        assert self.used >= 0, "a permit was released twice"
