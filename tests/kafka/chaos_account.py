"""The account of a chaos run: a journal of what clients did at all nodes, and what the coordinator said meanwhile.

The journal is judged by `tests.histories.rules`, as that of every campaign. Of a Kafka's group it also says when acks
may be lost (`uncommitted`): before a node was killed or stood still, by `near_seconds` (D52: 100 ms and a round trip);
while Kafka was away; and while the group was being shared out, unless the node was stopped in order, which waits for
its commit. What the coordinator named as `committed` never comes again. Judged here is what the rules cannot say:

- *after the loss*: a node handed out although Kafka's coordinator said, from before the hand-out to after it and each
  time it was asked, that another node has the partition.
- *ended*: a node was gone although nobody had ended it.
"""

from __future__ import annotations

import threading
import time
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from tests.histories.journal import Event, Journal
from tests.histories.rules import judge

Place = tuple[str, int]
"""Key, and number in it."""
Committed = tuple[int, Sequence[tuple[int, int]]]
"""Of a partition: the committed offset, and what is finished above it."""
SPARSE_SECONDS = 2.0
"""Two looks at the coordinator that are further apart say nothing of the time between them."""


@dataclass(slots=True)
class Outage:
    """A time in which a node (or with an empty name Kafka itself) was away: killed, or standing still."""

    node: str
    began: float
    ended: float = float("inf")


@dataclass(slots=True)
class Verdict:
    """What was found; each of the first three is empty, and `unsent` 0, of nodes that keep their promises."""

    faults: list[str] = field(default_factory=list)
    after_loss: list[str] = field(default_factory=list)
    ended: list[str] = field(default_factory=list)
    unsent: int = 0
    sent: int = 0
    handed_out: int = 0
    again: int = 0
    looks: int = 0
    commit_ms: tuple[int, int, int] = (0, 0, 0)
    """From an answer until the coordinator named it as committed: half, 99 %, the most; looks are some 100 ms apart."""

    @property
    def passed(self) -> bool:
        """Whether nothing is wrong."""
        return not any((self.faults, self.after_loss, self.ended, self.unsent))


class ChaosAccount:
    """Called by threads of clients, of the sender, of who puts faults in and of who looks at the coordinator."""

    def __init__(
        self, group: str, topic: str, *, near_seconds: float, session_seconds: float, timeout_seconds: float
    ) -> None:
        self._lock = threading.Lock()
        self._group, self._topic = group, topic
        self._near_seconds = near_seconds
        self._session_seconds = session_seconds
        self.journal = Journal()
        self.journal.add("group", 0.0, group=group, timeout=timeout_seconds)
        self._sent: dict[str, int] = {}
        self._acked: set[Place] = set()
        self._answered: dict[Place, float] = {}
        self._spots: dict[Place, tuple[int, int]] = {}
        self._again = 0
        self._stops: list[Outage] = []
        self._ended: list[str] = []
        self._commits: dict[int, list[tuple[float, Committed]]] = defaultdict(list)
        self._handed: list[tuple[str, int, float, float]] = []
        self._outages: list[Outage] = []
        self._looks: list[tuple[float, Mapping[int, str]]] = []
        self._unstable: list[float] = []

    # What clients do.

    def sent(self, key: str) -> int:
        """Return the number that the next message of a key has."""
        with self._lock:
            number = self._sent.get(key, 0)
            self._sent[key] = number + 1
            self._add("send", id=f"{key} {number}", who="sender", topic=self._topic, keys={self._group: key}, due=None)
            return number

    def acknowledged(self, place: Place, partition: int, offset: int) -> None:
        """Note what Kafka has, and where."""
        with self._lock:
            self._acked.add(place)
            self._add("sent", id=f"{place[0]} {place[1]}", result="stored", place=self._at(partition, offset))

    def take(  # noqa: PLR0917 - all that is known of a hand-out
        self, place: Place, node: str, partition: int, asked: float, got: float, offset: int, who: str = "c"
    ) -> None:
        """Note a hand-out to a client of a node: asked for and got at these times."""
        with self._lock:
            self._spots[place] = partition, offset
            self._handed.append((node, partition, asked, got))
            self._again += place in self._answered
            at = self._at(partition, offset)
            fields = {
                "place": at,
                "copy": at,
                "id": f"{place[0]} {place[1]}",
                "asked": _micros(asked),
                "asked_t": asked,
            }
            self._of_group("get", got, node, who=f"{node} {who}", late=False, **fields)

    def done(self, place: Place, node: str, at: float, *, success: bool, who: str = "c") -> None:
        """Note what a client is about to say: from here on the next of its key may come."""
        with self._lock:
            self._of_group("ack", at, node, who=f"{node} {who}", place=self._at(*self._spots[place]), success=success)

    def answered(self, places: list[Place], node: str, at: float) -> None:
        """Note answers that counted, given by a call that ended at this time."""
        with self._lock:
            for place in places:
                self._answered.setdefault(place, at)
                spot = self._at(*self._spots[place])
                self._of_group("acked", at, node, place=spot, copy=spot)

    def stored(self, place: Place, partition: int, offset: int) -> None:
        """Note what the topic holds in the end; in the order of each partition."""
        with self._lock:
            self._add(
                "stored", id=f"{place[0]} {place[1]}", place=self._at(partition, offset), at=offset, log=str(partition)
            )

    # What happens to nodes and to Kafka.

    def away(self, node: str, at: float) -> Outage:
        """Note that a node, or Kafka, is away from now on."""
        with self._lock:
            self._outages.append(Outage(node, at))
            return self._outages[-1]

    def stopped(self, node: str, at: float) -> None:
        """Note that a node is being stopped in order: nothing may come again by that."""
        with self._lock:
            self._stops.append(Outage(node, at))

    def ended(self, node: str, last: str) -> None:
        """Note that a node has ended by itself, with what it said last."""
        with self._lock:
            self._ended.append(f"{node} has ended by itself: {last}")

    def looked(
        self,
        at: float,
        owners: Mapping[int, str],
        committed: Mapping[int, Committed] | None = None,
        *,
        is_stable: bool = True,
    ) -> None:
        """Note who has which partition, and what is committed, as the coordinator said at this time."""
        with self._lock:
            if self._looks and (self._looks[-1][1] != owners or at - self._looks[-1][0] > SPARSE_SECONDS):
                self._unstable.append(at)
            self._looks.append((at, dict(owners)))
            if not is_stable:
                self._unstable.append(at)
            for partition, said in (committed or {}).items():
                commits = self._commits[partition]
                if not commits or commits[-1][1] != said:
                    commits.append((at, said))

    # What came of it.

    @property
    def left(self) -> int:
        """Messages that Kafka has and nobody has answered."""
        with self._lock:
            return len(self._acked) - sum(place in self._acked for place in self._answered)

    @property
    def finished(self) -> int:
        """Messages that were answered."""
        with self._lock:
            return len(self._answered)

    def verdict(self) -> Verdict:
        """Judge all of it."""
        with self._lock:
            self.journal.events.extend(self._said())
            self._place_lives()
            return Verdict(
                faults=judge(self.journal.ordered()),
                after_loss=list(self._after_loss()),
                ended=list(self._ended),
                unsent=sum(self._sent.values()) - len(self._acked),
                sent=len(self._acked),
                handed_out=len(self._handed),
                again=self._again,
                looks=len(self._looks),
                commit_ms=self._commit_ms(),
            )

    def _add(self, op: str, **fields: object) -> None:
        at = time.monotonic()
        self.journal.add(op, at, _micros(at), turn=_micros(at), life="", **fields)

    def _of_group(self, op: str, at: float, node: str, **fields: object) -> None:
        turn = _micros(at)
        self.journal.add(op, at, turn, turn=turn, life=node, node=node, group=self._group, **fields)

    def _at(self, partition: int, offset: int) -> list[object]:
        return [self._topic, str(partition), offset]

    def _place_lives(self) -> None:
        """A node that gets a partition back begins anew; what was under way while it stood still is late."""
        for each in self.journal.events:
            if "node" not in each or each["op"] == "uncommitted":
                continue
            each["life"] = f"{each['node']} {bisect_right(self._unstable, each['t'])}"
            if each["op"] == "get":
                since = each["asked_t"]
                outages = [out for out in self._outages if out.node in (each["node"], "")]
                each["late"] = any(out.began <= each["t"] and out.ended >= since for out in outages)

    def _said(self) -> list[Event]:
        """Return what is known of commits: when they may be lost, and which the coordinator has named."""
        said = Journal()
        near = self._near_seconds
        for each in self._outages:
            until = each.began + near if each.node else each.ended + 2 * self._session_seconds
            said.add("uncommitted", each.began, node=each.node, since=each.began - near, until=until)
        stopped = {each.node for each in self._stops}
        for node in {each[0] for each in self._handed} - stopped:
            went = max([each.began for each in self._outages if each.node == node], default=float("inf"))
            shared_out = [at for at in self._unstable if at <= went + SPARSE_SECONDS]
            if shared_out:
                said.add("uncommitted", shared_out[-1], node=node, since=0.0, until=shared_out[-1])
        for place, at in self._answered.items():
            seen = self._seen_committed(place, at)
            if seen is not None:
                said.add("committed", seen, group=self._group, place=self._at(*self._spots[place]))
        return said.events

    def _seen_committed(self, place: Place, at: float) -> float | None:
        """Return when the coordinator first named a message as committed, after an answer."""
        partition, offset = self._spots[place]
        commits = self._commits.get(partition, [])
        for seen, (upto, ranges) in commits[max(0, bisect_left(commits, at, key=lambda each: each[0]) - 1) :]:
            if offset < upto or any(start <= offset < end for start, end in ranges):
                return max(seen, at)
        return None

    def _commit_ms(self) -> tuple[int, int, int]:
        times = [at for at, _ in self._looks]
        ages = sorted(
            seen - at
            for place, at in self._answered.items()
            if (seen := self._seen_committed(place, at)) is not None
            # Where nobody looked it says nothing.
            and seen - times[max(0, bisect_left(times, seen) - 1)] < SPARSE_SECONDS / 4
        )
        if not ages:
            return 0, 0, 0
        return tuple(round(ages[int((len(ages) - 1) * share)] * 1000) for share in (0.5, 0.99, 1.0))  # type: ignore[return-value]

    def _after_loss(self) -> list[str]:
        times = [at for at, _ in self._looks]
        found = []
        for node, partition, asked, got in self._handed:
            # A node that stood still has handed nothing out before it woke.
            woke = [each.ended for each in self._outages if each.node == node and each.began < got]
            begin = max([asked, *(ended for ended in woke if ended <= got)])
            first, last = bisect_right(times, begin) - 1, bisect_left(times, got)
            if first < 0 or last >= len(times):
                continue
            looks = self._looks[first : last + 1]
            if any(later[0] - earlier[0] > SPARSE_SECONDS for earlier, later in pairwise(looks)):
                continue
            owners = {owner.get(partition) for _, owner in looks}
            if len(owners) == 1 and owners <= {each for each in owners if each not in (None, node)}:
                found.append(f"partition {partition} by {node} at {got:.3f}, while {owners.pop()} had it")
        return found


def _micros(seconds: float) -> int:
    return round(seconds * 1_000_000)
