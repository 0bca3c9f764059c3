"""What an operator is shown of a node's start and its reloads; see `broker.views`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from broker.views import View


def by_group(messages: Mapping[str, int]) -> str:
    """Write counts of messages by group, by name: `1,200 of group billing, 3 of group mail`."""
    return ", ".join(f"{count:,} of group {group}" for group, count in sorted(messages.items()))


class RecoveryView(View, frozen=True, kw_only=True):
    """How far an opening is.

    Attributes:
        phase: `log`: the commit log is scanned; `acks`: the ack journal is replayed; `waiting`: pending delayed
            messages, timers and transactions are determined; `topics` and `groups`: those of the configuration are
            created.
        scanned_bytes: Bytes of the log looked at.
        total_bytes: Bytes to look at, the empty rest of preallocated files included, which passes quickly.
        percent: 0 to 100 of the log.
        eta_seconds: Seconds left for the log at the present rate; null before there is one.
    """

    phase: str
    scanned_bytes: int
    total_bytes: int
    percent: float
    eta_seconds: float | None

    @property
    def sentence(self) -> str:
        """How far it is, for people."""
        if self.phase == "acks":
            return "the ack journal is replayed"
        if self.phase == "waiting":
            return "the log is read for delays, timers and transactions that were delivered or decided"
        if self.phase in ("topics", "groups"):
            return f"the {self.phase} of the configuration are created"
        left = "" if self.eta_seconds is None else f", about {self.eta_seconds:.0f} s left"
        return f"{self.percent:.0f} % of {self.total_bytes:,} bytes of the log{left}"


class ReloadResult(View, frozen=True, kw_only=True):
    """What a reload did; a refused one has changed nothing (promise 7).

    Attributes:
        accepted: Whether the configuration that was read is now in force; of a dry run, whether it could be.
        dry_run: Whether the node only shows what the reload would do.
        changes: A sentence per change.
        warnings: What is odd about the configuration.
        problems: Why it was refused; empty when it was not.
    """

    accepted: bool
    dry_run: bool = False
    changes: Sequence[str] = ()
    warnings: Sequence[str] = ()
    problems: Sequence[str] = ()
