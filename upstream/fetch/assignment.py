"""Which fetcher owns which queue of a topic: even, sticky, and the same for the same input."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TypeVar

Name = TypeVar("Name")


def assign(
    queues: Sequence[Name], members: Sequence[str], before: Mapping[Name, str], load: Mapping[str, int]
) -> dict[Name, str]:
    """Give every queue of a topic an owner.

    No member owns more than one queue above another. A queue changes hands only where that needs it: a member keeps as
    many of its own as it may have, those first in `queues`; the rest go, in order, to those who have too few.

    Args:
        queues: The queues, in their order.
        members: Who fetches, in the order in which they came. Nobody: nothing is owned.
        before: Owners so far; some may be gone.
        load: Queues of other topics that each has. Where some get one more than others, those who own more of this
            topic so far come first, then those with the lower load, then those who came first.

    Returns:
        Owner by queue.
    """
    if not members:
        return {}
    had = Counter(before.get(queue) for queue in queues)
    least, more = divmod(len(queues), len(members))
    ranked = sorted(members, key=lambda each: (-had[each], load.get(each, 0)))
    quota = {each: least + (place < more) for place, each in enumerate(ranked)}
    owners: dict[Name, str] = {}
    for queue in queues:
        owner = before.get(queue)
        if owner is not None and quota.get(owner, 0) > 0:
            owners[queue] = owner
            quota[owner] -= 1
    # Members in the order in which they came, each as often as it lacks a queue.
    lacking = (each for each in members for _ in range(quota[each]))
    for queue in queues:
        if queue not in owners:
            owners[queue] = next(lacking)
    return owners
