"""Long chains of results, cut into steps: what one call may bring, and what others may have to wait for it (D18)."""

from __future__ import annotations

from collections.abc import Iterator

from proxy.wire.values import ConsumeResult

STEP_RESULTS = 1_024
"""Results and offsets that are applied at a time (a millisecond or two); longer chains take several turns."""


def is_long(results: list[ConsumeResult]) -> bool:
    """Whether a chain is more than one step."""
    return len(results) + sum([len(each.success) + len(each.fail) for each in results]) > STEP_RESULTS


def pieces(results: list[ConsumeResult]) -> Iterator[list[ConsumeResult]]:
    """Cut a chain into chains of a step each, in the same order: of each result its successes first, then its fails."""
    piece: list[ConsumeResult] = []
    room = STEP_RESULTS
    for each in results:
        for success, fail in _cut(each):
            piece.append(each._replace(success=success, fail=fail))
            room -= 1 + len(success) + len(fail)
            if room <= 0:
                yield piece
                piece, room = [], STEP_RESULTS
    if piece:
        yield piece


def _cut(result: ConsumeResult) -> Iterator[tuple[list[int], list[int]]]:
    success, fail = result.success, result.fail
    if len(success) + len(fail) <= STEP_RESULTS:
        yield success, fail
        return
    for at in range(0, len(success), STEP_RESULTS):
        yield success[at : at + STEP_RESULTS], []
    for at in range(0, len(fail), STEP_RESULTS):
        yield [], fail[at : at + STEP_RESULTS]
