"""The outcome of a demo run: checks, rates and lag, and its stable JSON shape (docs/cli.md)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from proxy.demo.checker import DemoChecker, Findings


@dataclass(frozen=True, slots=True, kw_only=True)
class PromiseCheck:
    """One promise and what was found wrong with it."""

    name: str
    promise: str
    findings: Findings

    @property
    def passed(self) -> bool:
        """Whether nothing was found."""
        return self.findings.count == 0


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoOutcome:
    """What the outcomes of all demos begin with.

    Attributes:
        run: Run id.
        checks: In the order in which they are printed.
    """

    run: str
    checks: Sequence[PromiseCheck]

    @property
    def passed(self) -> bool:
        """Whether every check passed."""
        return all(check.passed for check in self.checks)

    def as_json(self) -> Mapping[str, Any]:
        """Return the outcome as JSON values."""
        return self.verdict()

    def verdict(self) -> dict[str, Any]:
        """Return run and checks as JSON values."""
        return {
            "run": self.run,
            "passed": self.passed,
            "checks": [
                {
                    "check": check.name,
                    "passed": check.passed,
                    "violations": check.findings.count,
                    "examples": check.findings.examples,
                }
                for check in self.checks
            ],
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoReport(DemoOutcome):
    """What one run showed.

    Attributes:
        events: Events sent.
        clients: Pull clients.
        deliveries: Deliveries of this run's events, with retries.
        failures: Deliveries failed on purpose.
        repeats: Deliveries of events that had succeeded already.
        foreign: Messages of older runs and other producers, acked on the way.
        send_seconds: From the first batch to the last receipt.
        consume_seconds: From the first delivery to the last success.
        lag: Messages of topic and group between committed and produced offsets, at the end.
        lag_seconds: Age of the oldest event of this run that had not succeeded, at the end; 0.0 when all had.
    """

    events: int
    clients: int
    deliveries: int
    failures: int
    repeats: int
    foreign: int
    send_seconds: float
    consume_seconds: float
    lag: int
    lag_seconds: float

    @property
    def sent_per_second(self) -> float:
        """Publish rate."""
        return self.events / self.send_seconds if self.send_seconds > 0 else 0.0

    @property
    def delivered_per_second(self) -> float:
        """Delivery rate."""
        return self.deliveries / self.consume_seconds if self.consume_seconds > 0 else 0.0

    def as_json(self) -> dict[str, Any]:
        """Return the report as JSON values."""
        return {
            **self.verdict(),
            "events": self.events,
            "clients": self.clients,
            "deliveries": self.deliveries,
            "failedOnPurpose": self.failures,
            "repeats": self.repeats,
            "foreign": self.foreign,
            "sendSeconds": round(self.send_seconds, 3),
            "sentPerSecond": round(self.sent_per_second, 1),
            "consumeSeconds": round(self.consume_seconds, 3),
            "deliveredPerSecond": round(self.delivered_per_second, 1),
            "lag": self.lag,
            "lagSeconds": round(self.lag_seconds, 3),
        }


def checks_of(checker: DemoChecker) -> tuple[PromiseCheck, ...]:
    """Draw the three verdicts from what was seen."""
    return (
        PromiseCheck(name="delivery", promise="every event was delivered and succeeded", findings=checker.missing()),
        PromiseCheck(
            name="order", promise="the events of each case arrived in order, one at a time", findings=checker.order
        ),
        PromiseCheck(name="retry", promise="failed events were retried in place", findings=checker.unretried()),
    )
