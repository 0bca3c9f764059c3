"""One page of a redrive, in steps of bounded work."""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Sequence
from typing import Any

from msgspec.structs import asdict, replace

from broker.errors import StoreError
from broker.retry.letters import Letter
from broker.retry.redrive import RedriveRefused, Redrives
from broker.store import Store
from proxy.operate.lookups.dead_letters import LetterPage, describe, earlier
from proxy.operate.views.dead_letters import DeadLetterView, RedriveOutcome, RedriveResult, RedriveTarget


class Redrive:
    """One page of a redrive: what is wanted is appended, or only looked at when it is a dry run."""

    def __init__(
        self, store: Store, redrives: Redrives, group: str, page: LetterPage, *, to: str | None, again: bool, dry: bool
    ) -> None:
        self._store = store
        self._redrives = redrives
        self._group = group
        self._page = page
        self._to = to
        self._again = again
        self._dry = dry
        self._results: list[RedriveOutcome] = []
        self._stopped: str | None = None

    def steps(self) -> Generator[None, None, None]:
        """Redrive, yielding after each bounded piece of work; what was appended waits for a flush."""
        for letter in self._page.found():
            if letter is None:
                yield
                continue
            try:
                self._results.append(self._one(letter))
            except StoreError as error:
                self._stopped = str(error)
                self._page.stop_before(letter)
                return

    def _one(self, letter: Letter) -> RedriveOutcome:
        """Redrive one dead letter. Raises StoreError when the store takes nothing now."""
        described = describe(letter, earlier(self._store, self._redrives, letter))
        if described.redriven and not self._again:
            return outcome_of(described, "already")
        try:
            released = self._redrives.plan(letter, to=self._to)
            target = RedriveTarget(topic=released.put.topic.name, queue=released.put.queue_id)
            if self._dry:
                return outcome_of(described, "would_redrive", target=target)
            position = self._redrives.append(letter, released)
        except RedriveRefused as refusal:
            if not self._dry:
                self._redrives.count_refused(self._group, refusal.kind)
            return outcome_of(described, "refused", kind=refusal.kind, why=str(refusal))
        made = self._store.options.store_host + position.physical.to_bytes(8, "big")
        return outcome_of(described, "redriven", target=replace(target, offset=position.offset, id=made.hex().upper()))

    @property
    def is_last(self) -> bool:
        """Whether there is nothing left, or the store takes nothing now."""
        return self._page.cursor is None or self._stopped is not None

    def result(self) -> RedriveResult:
        """Return what became of each dead letter; to be called when what was appended is durable."""
        return redrive_result(
            self._group,
            self._results,
            dry=self._dry,
            looked_at=self._page.looked_at,
            stopped=self._stopped,
            cursor=self._page.cursor,
        )


def redrive_result(
    group: str, results: Sequence[RedriveOutcome], *, dry: bool, looked_at: int, stopped: str | None, cursor: str | None
) -> RedriveResult:
    """Return what a page of a redrive did, counted."""
    outcomes = Counter(each.outcome for each in results)
    return RedriveResult(
        group=group,
        dry_run=dry,
        looked_at=looked_at,
        redriven=outcomes["redriven"],
        would_redrive=outcomes["would_redrive"],
        already=outcomes["already"],
        refused=outcomes["refused"],
        stopped=stopped,
        cursor=cursor,
        results=results,
    )


def outcome_of(letter: DeadLetterView, outcome: str, **more: Any) -> RedriveOutcome:
    """Return the outcome of one dead letter."""
    return RedriveOutcome(**asdict(letter), outcome=outcome, **more)
