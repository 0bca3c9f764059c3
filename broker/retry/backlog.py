"""Messages in retry topics that a group receives only if it reads its retry topic.

RocketMQ's consumers read `%RETRY%<group>` by themselves, and POP consumers `%RETRY%<group>_<topic>` (or with `+`). A
group here reads its retry topic if it asks for it (`retryTopic: true`, D37), and POP's never.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Set
from dataclasses import dataclass
from typing import TYPE_CHECKING

from broker.queues.topics import RETRY_PREFIX, is_system

if TYPE_CHECKING:
    from broker.store import Store

Committed = Callable[[str, str, int], int | None]
"""Returns the committed offset of a group, topic and queue; None when there is none."""

_POP_SEPARATORS = "_+"


@dataclass(frozen=True, slots=True, kw_only=True)
class UnreadRetries:
    """Messages of one retry topic that its group has not consumed.

    Attributes:
        topic: The retry topic.
        group: The group whose name it has, if it is not one of POP's.
        pop: The topic is one of POP's own.
        count: Messages from the committed offsets on.
    """

    topic: str
    group: str
    pop: bool
    count: int


def unread_in(store: Store, committed: Committed, *, readers: Set[str] = frozenset()) -> Iterator[UnreadRetries]:
    """`unread_retries` of an open store."""
    stored = {
        name: {queue.queue_id: range(queue.min_offset, queue.max_offset) for queue in topic.queues}
        for name, topic in store.topics.items()
        if name.startswith(RETRY_PREFIX)
    }
    return unread_retries(stored, store.topics.keys(), committed, readers=readers)


def unread_retries(
    stored: Mapping[str, Mapping[int, range]],
    topics: Set[str],
    committed: Committed,
    *,
    readers: Set[str] = frozenset(),
) -> Iterator[UnreadRetries]:
    """Yield the retry topics with messages that their groups have not consumed, by name.

    Args:
        stored: By retry topic and queue, the queue offsets that have messages.
        topics: Names of all topics of the store.
        committed: See `Committed`.
        readers: Groups that read their retry topic.
    """
    for name, queues in sorted(stored.items()):
        whole = name.removeprefix(RETRY_PREFIX)
        if whole in readers:
            continue
        poppers = _pop_groups(whole, topics)
        count = 0
        for queue_id, offsets in queues.items():
            done = max(committed(group, name, queue_id) or 0 for group in (whole, *poppers))
            count += max(0, offsets.stop - max(done, offsets.start))
        if count:
            yield UnreadRetries(topic=name, group=whole, pop=bool(poppers), count=count)


def _pop_groups(whole: str, topics: Set[str]) -> list[str]:
    """Return the groups whose POP consumers may have that name of a retry topic, by the topics of the store."""
    return [
        whole[:at]
        for at in range(1, len(whole) - 1)
        if whole[at] in _POP_SEPARATORS and whole[at + 1 :] in topics and not is_system(whole[at + 1 :])
    ]
