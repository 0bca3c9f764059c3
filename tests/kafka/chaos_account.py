"""The account of a chaos run: what was sent, handed out and answered, over all nodes, and what is wrong with it.

Everything is seen from outside: by the clients' calls, and by who has which partition as Kafka's coordinator says.
Times are those of one monotonic clock. Pure bookkeeping under one lock; whoever looks on calls it.

- *lost*: sent, acknowledged by Kafka, never answered.
- *disorder*: handed out while an earlier one of its key was not finished; after an answer that was not committed the
  key goes back, and from there on counts again. Two of a key out at one node at once is disorder, too.
- *after the loss*: a node handed out although Kafka's coordinator said, from before the hand-out to after it and each
  time it was asked, that another node has the partition.
- *again*: handed out although the answer had counted. It is *near* when the node that had taken the answer was killed,
  or stood still, within `near_seconds` of it (D52: 100 ms and a round trip), *across* when nothing could be
  committed, since Kafka was away, and *shared* when the group was being shared out between the answer and its node's
  death.
  Any other is *unforgiven*, and so is each whose end the coordinator had named as
  committed before it was handed out again.
- *ended*: a node was gone although nobody had ended it.
"""

from __future__ import annotations

import threading
from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

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
    """What was found; each of the first six is 0 of a node that keeps its promises."""

    lost: list[Place] = field(default_factory=list)
    disorder: list[str] = field(default_factory=list)
    after_loss: list[str] = field(default_factory=list)
    unforgiven: list[str] = field(default_factory=list)
    ended: list[str] = field(default_factory=list)
    unsent: int = 0
    sent: int = 0
    handed_out: int = 0
    near: int = 0
    near_100ms: int = 0
    across_kafka: int = 0
    shared: int = 0
    oldest_near_ms: int = 0
    looks: int = 0
    commit_ms: tuple[int, int, int] = (0, 0, 0)
    """From an answer until the coordinator named it as committed: half, 99 %, the most; looks are some 100 ms apart."""

    @property
    def passed(self) -> bool:
        """Whether nothing is wrong."""
        found = (self.lost, self.disorder, self.after_loss, self.unforgiven, self.ended, self.unsent)
        return not any(found)


class ChaosAccount:
    """Called by threads of clients, of the sender, of who puts faults in and of who looks at the coordinator."""

    def __init__(self, *, near_seconds: float, session_seconds: float) -> None:
        self._lock = threading.Lock()
        self._near_seconds = near_seconds
        self._session_seconds = session_seconds
        self._sent: dict[str, int] = {}
        self._acked: set[Place] = set()
        self._next: dict[str, int] = {}
        self._out: dict[tuple[str, str], int] = {}
        self._answered: dict[Place, tuple[float, str]] = {}
        self._spots: dict[Place, tuple[int, int]] = {}
        self._again: list[tuple[Place, float, str, float]] = []
        self._stops: list[Outage] = []
        self._ended: list[str] = []
        self._commits: dict[int, list[tuple[float, Committed]]] = defaultdict(list)
        self._handed: list[tuple[str, int, float, float]] = []
        self._outages: list[Outage] = []
        self._looks: list[tuple[float, Mapping[int, str]]] = []
        self._shared_out: list[float] = []
        self._verdict = Verdict()

    def sent(self, key: str) -> int:
        """Return the number that the next message of a key has."""
        with self._lock:
            number = self._sent.get(key, 0)
            self._sent[key] = number + 1
            return number

    def acknowledged(self, place: Place) -> None:
        """Note what Kafka has."""
        with self._lock:
            self._acked.add(place)

    def take(  # noqa: PLR0917 - all that is known of a hand-out
        self, place: Place, node: str, partition: int, asked: float, got: float, offset: int = -1
    ) -> None:
        """Note a hand-out: asked for and got at these times."""
        key, number = place
        with self._lock:
            self._spots[place] = (partition, offset)
            found = self._verdict
            found.handed_out += 1
            self._handed.append((node, partition, asked, got))
            due = self._next.get(key, 0)
            if number > due:
                found.disorder.append(f"{place} by {node} where {due} was due")
            out = self._out.get((node, key))
            if out is not None and out != number:
                found.disorder.append(f"{place} by {node} while {out} of the key was out there")
            self._out[node, key] = number
            if place in self._answered:
                self._again.append((place, *self._answered[place], asked))
            if number < due:
                self._next[key] = number

    def done(self, place: Place, node: str, *, success: bool) -> None:
        """Note what a client is about to say: from here on the next of its key may come."""
        key, number = place
        with self._lock:
            self._out.pop((node, key), None)
            if success and self._next.get(key, 0) == number:
                self._next[key] = number + 1

    def gone(self, node: str) -> None:
        """Note that clients of a node have given up what they had."""
        with self._lock:
            for each in [each for each in self._out if each[0] == node]:
                del self._out[each]

    def answered(self, places: list[Place], node: str, at: float) -> None:
        """Note answers that counted, given by a call that began at this time."""
        with self._lock:
            for place in places:
                self._answered[place] = (at, node)

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
            self._looks.append((at, dict(owners)))
            if not is_stable:
                self._shared_out.append(at)
            for partition, said in (committed or {}).items():
                commits = self._commits[partition]
                if not commits or commits[-1][1] != said:
                    commits.append((at, said))

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
            found = self._verdict
            found.sent = len(self._acked)
            found.unsent = sum(self._sent.values()) - len(self._acked)
            found.lost = sorted(self._acked - self._answered.keys())
            found.looks = len(self._looks)
            found.ended = list(self._ended)
            found.commit_ms = self._commit_ms()
            self._judge_repeats(found)
            self._judge_owners(found)
            return found

    def _judge_repeats(self, found: Verdict) -> None:
        ages: Counter[str] = Counter()
        for place, at, node, again in self._again:
            near = [abs(each.began - at) for each in self._outages if each.node == node and self._is_near(each, at)]
            seen = self._seen_committed(place, at)
            if seen is not None and seen < again:
                found.unforgiven.append(
                    f"{place} again at {again:.3f}, answered to {node} at {at:.3f} and committed by {seen:.3f}"
                )
            elif near:
                ages["near"] += 1
                ages["near_100ms"] += min(near) <= 0.1
                found.oldest_near_ms = max(found.oldest_near_ms, round(min(near) * 1000))
            elif any(not each.node and self._is_across(each, at) for each in self._outages):
                ages["across"] += 1
            elif self._is_shared_out(node, at, again):
                ages["shared"] += 1
            else:
                gone = after(self._outages, node, at), after(self._stops, node, at)
                found.unforgiven.append(
                    f"{place} again at {again:.3f}, answered to {node} at {at:.3f}, not committed; "
                    f"it or Kafka went {gone[0]} later, it was stopped {gone[1]} later"
                )
        found.near, found.near_100ms = ages["near"], ages["near_100ms"]
        found.across_kafka, found.shared = ages["across"], ages["shared"]

    def _seen_committed(self, place: Place, at: float) -> float | None:
        """Return when the coordinator first named a message as committed, after an answer."""
        partition, offset = self._spots[place]
        commits = self._commits.get(partition, [])
        for seen, (upto, ranges) in commits[max(0, bisect_left(commits, at, key=lambda each: each[0]) - 1) :]:
            if offset < upto or any(start <= offset < end for start, end in ranges):
                return seen
        return None

    def _commit_ms(self) -> tuple[int, int, int]:
        times = [at for at, _ in self._looks]
        ages = sorted(
            max(0.0, seen - at)
            for place, (at, _) in self._answered.items()
            if place in self._spots
            and (seen := self._seen_committed(place, at)) is not None
            # Where nobody looked it says nothing.
            and seen - times[max(0, bisect_left(times, seen) - 1)] < SPARSE_SECONDS / 4
        )
        if not ages:
            return 0, 0, 0
        return tuple(round(ages[int((len(ages) - 1) * share)] * 1000) for share in (0.5, 0.99, 1.0))  # type: ignore[return-value]

    def _is_near(self, outage: Outage, at: float) -> bool:
        """Whether an answer came just before (or, by the client's clock, while) its node went."""
        return outage.began - self._near_seconds <= at <= outage.began + self._near_seconds

    def _is_across(self, outage: Outage, at: float) -> bool:
        """Whether an answer could not be committed, since Kafka was away, or its members were joining again."""
        return outage.began - self._near_seconds <= at <= outage.ended + 2 * self._session_seconds

    def _is_shared_out(self, node: str, at: float, until: float) -> bool:
        """Whether the group was being shared out when a node died after an answer: no commits are taken then.

        By the coordinator's word: it says so, or names other owners than a moment ago. A node that is stopped in order
        waits for its commit, so that is no excuse for it.
        """
        if any(each.node == node and at <= each.began <= until for each in self._stops):
            return False
        went = min([each.began for each in self._outages if each.node == node and at <= each.began], default=until)
        times = [each for each, _ in self._looks]
        looks = self._looks[max(0, bisect_left(times, at) - 1) : bisect_right(times, went) + 1]
        said = bisect_right(self._shared_out, went) > bisect_left(self._shared_out, at)
        return said or len({tuple(sorted(owners.items())) for _, owners in looks}) > 1

    def _judge_owners(self, found: Verdict) -> None:
        times = [at for at, _ in self._looks]
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
                found.after_loss.append(f"partition {partition} by {node} at {got:.3f}, while {owners.pop()} had it")


def after(outages: Sequence[Outage], node: str, at: float) -> str:
    """Return how long after a moment a node, or Kafka, went first, for people."""
    later = [each.began - at for each in outages if each.node in (node, "") and each.began >= at]
    return f"{min(later):.3f} s" if later else "never"
