"""Judges a history by docs/promises.md alone: no line of this imports the product or the ledgers of the campaigns.

Each rule is a generator of sentences, one for each fault that it finds; `judge` names the rule before the sentence. The
names are those of Jepsen's workload for Kafka where it has the same anomaly. What a rule cannot know it does not judge:
an answer that never came may mean either.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterator
from itertools import pairwise

from tests.histories.journal import Event

Place = tuple[str, str, int]
OfGroup = tuple[str, Place]
SLACK_MS = 2
"""The wall clock is read in whole milliseconds, at the beginning of a stretch and at its end."""
BEGUN_SECONDS = 0.004
"""What is stored so long before its moment is shown when that time has passed, though the clock is set back in it."""
SLACK_SECONDS = 0.001
NEVER = 1 << 62


def place_of(value: list[object]) -> Place:
    """Return a place as JSON has it as one that can be a key."""
    topic, queue, offset = value
    return str(topic), str(queue), int(str(offset))


class History:
    """A history by what is asked of it. All lists are in the order of the run.

    Args:
        events: In the order of the run, as `journal.in_order` returns them.
    """

    def __init__(self, events: list[Event]) -> None:
        self.events = [{**event, "n": number} for number, event in enumerate(events)]
        by_op: dict[str, list[Event]] = defaultdict(list)
        for event in self.events:
            by_op[event["op"]].append(event)
        self.of = by_op
        self.sends = {each["id"]: each for each in by_op["send"]}
        self.results = {each["id"]: each for each in by_op["sent"]}
        self.stored = sorted(by_op["stored"], key=lambda each: each["at"])
        self.forgiven = {id_ for each in by_op["cut"] for id_ in each["ids"]}
        """Messages that a power loss may take, under `flush: async`."""
        self.lost = {place_of(each["place"]) for each in by_op["lost"]}
        self.dead = {(each["group"], place_of(each["place"])) for each in by_op["dead"]}
        self.timeouts = {each["group"]: each["timeout"] for each in by_op["group"]}
        self.ends = {each["life"]: each for each in by_op["end"]}
        self.gets = self.of_groups("get")
        self.acks = self.of_groups("ack")
        self.acked = self.of_groups("acked")
        self._walls = [(each["t"], each["ms"]) for each in by_op["wall"]]

    def of_groups(self, op: str) -> dict[OfGroup, list[Event]]:
        """Return the events of a kind by group and place."""
        found: dict[OfGroup, list[Event]] = defaultdict(list)
        for event in self.of[op]:
            found[event["group"], place_of(event["place"])].append(event)
        return found

    # Resets.

    def resets_of(self, group: str, place: Place) -> list[Event]:
        """Return the resets that moved a message's queue."""
        topic, queue, _ = place
        made = [each for each in self.of["reset"] if (each["group"], each["topic"]) == (group, topic)]
        return [each for each in made if queue in each["to"]]

    def begin(self, group: str, place: Place) -> Event | None:
        """Return the last reset after which a message was to come, again or for the first time."""
        back = [each for each in self.resets_of(group, place) if place[2] >= each["to"][place[1]]]
        return back[-1] if back else None

    def passed_over(self, group: str, place: Place) -> Event | None:
        """Return the reset that passed over a message and was not taken back."""
        passed = None
        for each in self.resets_of(group, place):
            passed = (passed or each) if place[2] < each["to"][place[1]] else None
        return passed

    def since(self, events: list[Event], group: str, place: Place) -> list[Event]:
        """Return those of some events that came after the last reset that took the message back."""
        begin = self.begin(group, place)
        return [each for each in events if begin is None or each["n"] > begin["n"]]

    def finished_turn(self, group: str, place: Place) -> int:
        """Return the turn from which on a message does not hold its key; -1 for a dead letter, of unknown turn."""
        if (group, place) in self.dead or place in self.lost:
            return -1
        turns = [each["turn"] for each in self.since(self.acks[group, place], group, place) if each["success"]]
        if (passed := self.passed_over(group, place)) is not None:
            turns.append(passed["turn"])
        return min(turns, default=NEVER)

    def may_be_lost(self, acked: Event) -> bool:
        """Whether an ack may have been lost: with the power, or since it could not be committed."""
        for each in self.of["uncommitted"]:
            if each["node"] in ("", acked.get("node")) and each["since"] <= acked["t"] <= each["until"]:
                return True
        # What vouched for it may have been of the end that its queue lost.
        if any(each["t"] >= acked["t"] and acked["place"][:2] in each.get("queues", ()) for each in self.of["cut"]):
            return True
        end = self.ends.get(acked["life"])
        return end is not None and end["acks_lost"] > 0 and end["t"] - acked["t"] <= end["acks_lost"] + SLACK_SECONDS

    # Messages.

    def wanted(self) -> Iterator[tuple[str, str, Event]]:
        """Yield group, order key and stored message for each pair of them, in the order of the log."""
        for stored in self.stored:
            send = self.sends.get(stored["id"])
            for group, key in ({} if send is None else send["keys"]).items():
                yield group, key, stored

    def chains(self) -> dict[tuple[str, str, str], list[Place]]:
        """Return the messages of each group, topic and order key, in the order of the log."""
        found: dict[tuple[str, str, str], list[Place]] = defaultdict(list)
        for group, key, stored in self.wanted():
            if key:
                place = place_of(stored["place"])
                found[group, place[0], key].append(place)
        return found

    def changes(self, id_: object) -> list[Event]:
        """Return the changes of a waiting message, and their answers."""
        return [each for each in self.of["change"] + self.of["changed"] if each["id"] == id_]

    def may_be_cancelled(self, id_: object) -> bool:
        """Whether a message need not come: a cancel was answered so, or not at all."""
        is_open = False
        for each in sorted(self.changes(id_), key=lambda each: each["n"]):
            if each["op"] == "change":
                is_open = is_open or each["due"] is None
            elif each["result"] == "cancelled":
                return True
            elif each["result"] == "tooLate":
                is_open = False
        return is_open

    # The wall clock.

    def wall(self, t: float) -> float:
        """Return what the wall clock showed."""
        since, ms = self._walls[max(0, bisect_right(self._walls, (t, NEVER)) - 1)]
        return float(ms + (t - since) * 1000)

    def wall_between(self, since: float, until: float) -> list[float]:
        """Return what it showed at both ends, and before and after each step between them."""
        steps = [
            value
            for (before_t, before_ms), (t, ms) in pairwise(self._walls)
            if since <= t <= until
            for value in (before_ms + (t - before_t) * 1000, ms)
        ]
        return [self.wall(since), self.wall(until), *steps]

    def _without_steps(self, since: float, until: float) -> list[float]:
        """Return what it would have shown without each step, for as long as a message that was begun may go on."""
        return [
            before_ms + (min(until, t + BEGUN_SECONDS) - before_t) * 1000
            for (before_t, before_ms), (t, _) in pairwise(self._walls)
            if since <= t <= until
        ]

    def is_early(self, moment: tuple[str, int, float, float], t: float) -> bool:
        """Whether a message came before its moment: kind, ms, when it was sent, and until when it was received."""
        kind, ms, sent, received = moment
        highest = max(*self.wall_between(sent, t), *self._without_steps(sent, t)) + SLACK_MS
        if kind == "at":
            return highest < ms
        if highest >= min(self.wall_between(sent, received)) + ms:
            return False
        # A level's message waits for its delay and no longer, whatever the wall clock does meanwhile.
        return kind == "delay" or (t - sent) * 1000 + SLACK_MS < ms


# What was sent, and what is in the log.


def lost_write(history: History) -> Iterator[str]:
    """An acknowledged message is in the log at the end; a committed transaction's is in its topic."""
    there = {each["id"] for each in history.stored}
    for id_, sent in history.results.items():
        if sent["result"] != "stored" or id_ in there or id_ in history.forgiven:
            continue
        if not history.may_be_cancelled(id_):
            yield f"message {id_} was acknowledged and is not in the log"
    visible = {each["id"] for each in history.of["visible"]}
    for decided in history.of["decided"]:
        if decided["state"] == "commit" and decided["result"] == "taken" and decided["id"] not in visible:
            yield f"transaction {decided['id']} was committed and is not visible"


def duplicate(history: History) -> Iterator[str]:
    """A message that was sent once is in the log once."""
    # A power loss may have undone the move of a timer that was delivered after it.
    undone = {each["id"] for each in history.of["undone"]}
    for op in ("stored", "visible"):
        seen = set()
        for each in history.of[op]:
            if each["id"] in seen and each["id"] not in undone:
                yield f"message {each['id']} is there twice ({op})"
            seen.add(each["id"])


def inconsistent_offset(history: History) -> Iterator[str]:
    """A place names one message for good."""
    named: dict[Place, object] = {}
    for each in history.events:
        if each["op"] == "cut":
            named = {place: id_ for place, id_ in named.items() if id_ not in each["ids"]}
        if each["op"] not in ("sent", "get", "stored") or not each.get("place"):
            continue
        place = place_of(each["place"])
        if named.setdefault(place, each["id"]) != each["id"]:
            yield f"{place} named message {named[place]} and then {each['id']} ({each['op']})"


def aborted_read(history: History) -> Iterator[str]:
    """What was refused, rolled back or never sent is not in the log, and no client gets it."""
    for each in history.of["get"] + history.stored:
        id_ = each["id"]
        if id_ not in history.sends:
            yield f"message {id_} was never sent ({each['op']})"
        elif history.results.get(id_, {}).get("result") == "refused":
            yield f"message {id_} was refused ({each['op']})"
    committed = {each["id"] for each in history.of["decide"] if each["state"] == "commit"}
    rolled_back = {
        each["id"] for each in history.of["decided"] if each["state"] == "rollback" and each["result"] == "taken"
    }
    for each in history.of["visible"]:
        if each["id"] in rolled_back or each["id"] not in committed:
            yield f"transaction {each['id']} is visible and was not committed"


def nonmonotonic_send(history: History) -> Iterator[str]:
    """What was sent after another was acknowledged is behind it in the log."""
    first: dict[str, tuple[int, object]] = defaultdict(lambda: (NEVER, None))
    for stored in reversed(history.stored):
        earliest, whose = first[stored.get("log", "")]
        send, sent = history.sends.get(stored["id"]), history.results.get(stored["id"])
        if send is None or send["due"] or stored["id"] in history.forgiven:
            continue
        if send["n"] > earliest:
            yield f"message {stored['id']} is in the log before {whose}, which was acknowledged before it was sent"
        if sent is not None and sent["result"] == "stored" and sent["n"] < earliest:
            first[stored.get("log", "")] = sent["n"], stored["id"]


# What groups got.


def unseen(history: History) -> Iterator[str]:
    """Each message that a group is to get is acknowledged or dead-lettered in the end."""
    for group, _, stored in history.wanted():
        place = place_of(stored["place"])
        if (group, place) in history.dead or place in history.lost or history.passed_over(group, place):
            continue
        # By a client or an operator; after a reset the success of a delivery from before it counts, too.
        if not any(each["success"] for each in history.since(history.acks[group, place], group, place)):
            seen = "was dropped" if history.gets[group, place] else "never came"
            yield f"message {stored['id']} at {place} {seen}: {group} has not acknowledged it"


def undone_ack(history: History) -> Iterator[str]:
    """A message whose acknowledgement was answered is not delivered to the group again."""
    for (group, place), acked in history.acked.items():
        begin = history.begin(group, place)
        for answer in acked:
            if begin is not None and not _follows_a_success(history, group, place, answer, begin):
                continue
            for get in history.since(history.gets[group, place], group, place):
                if history.resets_of(group, place) and get["copy"] != answer["copy"]:
                    continue
                later = get["life"] != answer["life"] and get["asked_t"] > answer["t"]
                again = later and not history.may_be_lost(answer)
                if again or (get["life"] == answer["life"] and get["asked"] > answer["turn"] and not get["late"]):
                    yield f"message {get['id']} at {place} came to {group} again after its acknowledgement was answered"


def undone_commit(history: History) -> Iterator[str]:
    """What the coordinator has named as finished is not delivered to the group again, whoever ended meanwhile."""
    committed = history.of_groups("committed")
    for (group, place), named in committed.items():
        for get in history.gets[group, place]:
            if get["asked_t"] > named[0]["t"] and not history.resets_of(group, place):
                yield f"message {get['id']} at {place} came to {group} again after the coordinator had it as committed"


def _follows_a_success(history: History, group: str, place: Place, answer: Event, begin: Event) -> bool:
    """Whether an answered acknowledgement is of a success after the reset that took the message back."""
    return any(each["success"] and begin["n"] < each["n"] < answer["n"] for each in history.acks[group, place])


def two_holders(history: History) -> Iterator[str]:
    """Never two messages of a key are in flight: each is answered by its client or times out before the next."""
    for (group, _, key), places in history.chains().items():
        gets = [get for place in places for get in history.gets[group, place] if not get["late"]]
        held: list[Event] = []
        for get in sorted(gets, key=lambda each: each["n"]):
            held = [each for each in held if _is_held(history, group, each, get)]
            if held:
                yield f"key {key!r} of {group}: {held[0]['place']} and {get['place']} are in flight at once"
            held.append(get)


def _is_held(history: History, group: str, get: Event, now: Event) -> bool:
    if now["life"] != get["life"] or now["t"] >= get["asked_t"] + history.timeouts[group] - SLACK_SECONDS:
        return False
    return not any(
        each["who"] == get["who"] and each["n"] > get["n"] and each["turn"] <= now["turn"]
        for each in history.acks[group, place_of(get["place"])]
    )


def key_overtaken(history: History) -> Iterator[str]:
    """A message comes when each earlier one of its key is finished, and no earlier one comes after it."""
    for (group, _, key), places in history.chains().items():
        opens: list[tuple[int, int, Place]] = []
        lasts: list[tuple[int, Event]] = []
        for place in places:
            begin = history.begin(group, place)
            began, turn = (-1, 0) if begin is None else (begin["n"], begin["turn"])
            gets = [each for each in history.since(history.gets[group, place], group, place) if not each["late"]]
            if gets:
                first = gets[0]
                for since, until, other in opens:
                    if since <= first["turn"] < until:
                        yield f"key {key!r} of {group}: {place} came before {other} was finished"
                for since, last in lasts:
                    if since < first["n"] < last["n"]:
                        yield f"key {key!r} of {group}: {last['place']} came again after {place}"
            lasts += [(began, each) for each in gets if not _repeats_a_lost_ack(history, group, each)]
            opens.append((turn, history.finished_turn(group, place), place))


def _repeats_a_lost_ack(history: History, group: str, get: Event) -> bool:
    place = place_of(get["place"])
    return any(
        each["success"]
        and each["life"] != get["life"]
        and each["n"] < get["n"]
        and any(history.may_be_lost(moment) for moment in _counted(history, group, place, each))
        for each in history.acks[group, place]
    )


def _counted(history: History, group: str, place: Place, ack: Event) -> Iterator[Event]:
    """Yield between which moments an ack counted: when it was sent, and when it was answered or its node ended.

    A node that waits for its disk may take an ack long after it was sent.
    """
    yield ack
    life = ack["life"]
    answers = (each for each in history.acked[group, place] if each["life"] == life and each["n"] > ack["n"])
    if (last := next(answers, history.ends.get(life))) is not None:
        yield {**ack, "t": last["t"]}


# Readers with a position of their own.


def poll_skip(history: History) -> Iterator[str]:
    """A reader misses no message between two that it gets."""
    offsets: dict[tuple[str, str], list[int]] = defaultdict(list)
    for stored in history.stored:
        topic, queue, offset = place_of(stored["place"])
        offsets[topic, queue].append(offset)
    for who, of, before, after in _steps(history):
        missed = [each for each in offsets[of] if before < each < after]
        if missed:
            yield f"{who} went from {before} to {after} of {of} and missed {missed[:3]}"


def nonmonotonic_poll(history: History) -> Iterator[str]:
    """A reader's offsets rise."""
    for who, queue, before, after in _steps(history):
        if after <= before:
            yield f"{who} got {after} of {queue} after {before}"


def _steps(history: History) -> Iterator[tuple[str, tuple[str, str], int, int]]:
    """Yield each pair of offsets that a reader got one after the other, without a seek between."""
    last: dict[tuple[str, str, str], int] = {}
    for each in history.events:
        if each["op"] not in ("poll", "seek"):
            continue
        topic, queue = each["queue"]
        reader = (each["who"], topic, queue)
        if each["op"] == "seek":
            last[reader] = each["offset"] - 1
            continue
        for offset in each["offsets"]:
            if reader in last:
                yield each["who"], (topic, queue), last[reader], offset
            last[reader] = offset


# What waits.


def early_timer(history: History) -> Iterator[str]:
    """A message that waits does not come before its moment, by the wall clock's highest value until then."""
    gets: dict[object, list[Event]] = defaultdict(list)
    for get in history.of["get"]:
        gets[get["id"]].append(get)
    for id_, send in history.sends.items():
        if not send["due"]:
            continue
        changes = history.changes(id_)
        for get in gets[id_]:
            moments = _moments(history, send, changes, get["n"], get["t"])
            if moments and all(history.is_early(each, get["t"]) for each in moments):
                yield f"message {id_} came at {get['t']} before its moment: {moments}"


def _moments(
    history: History, send: Event, changes: list[Event], n: int, t: float
) -> list[tuple[str, int, float, float]]:
    """Return the moments that a message may have at a place of the run; several while a change is not answered."""
    sent = history.results.get(send["id"])
    received = sent["t"] if sent is not None and sent["result"] == "stored" else t
    moments = [(*send["due"], send["t"], received)]
    asked = None
    for each in sorted(changes, key=lambda each: each["n"]):
        if each["n"] > n:
            break
        if each["op"] == "change":
            asked = (*each["due"], each["t"], each["t"]) if each["due"] else None
            moments += [asked] if asked is not None else []
        elif each["result"] == "rescheduled" and asked is not None:
            moments = [asked]
        elif asked in moments:
            moments.remove(asked)
    return moments


def lying_cancel(history: History) -> Iterator[str]:
    """A message whose cancel was answered as done never comes; one that was too late for a change was due."""
    came = {each["id"] for each in history.of["get"] + history.stored}
    for changed in history.of["changed"]:
        id_ = changed["id"]
        if changed["result"] == "cancelled" and id_ in came:
            yield f"message {id_} was answered as cancelled and came"
        if changed["result"] == "tooLate":
            moments = _moments(history, history.sends[id_], history.changes(id_), changed["n"], changed["t"])
            if moments and all(history.is_early(each, changed["t"]) for each in moments):
                yield f"message {id_} was answered with tooLate before its moment"


def contradicted_decision(history: History) -> Iterator[str]:
    """A transaction is committed or rolled back, never both."""
    taken: dict[object, set[str]] = defaultdict(set)
    for each in history.of["decided"]:
        if each["result"] == "taken":
            taken[each["id"]].add(each["state"])
    yield from (f"transaction {id_} was committed and rolled back" for id_, states in taken.items() if len(states) > 1)


RULES: tuple[Callable[[History], Iterator[str]], ...] = (
    lost_write,
    duplicate,
    inconsistent_offset,
    aborted_read,
    nonmonotonic_send,
    unseen,
    undone_ack,
    undone_commit,
    two_holders,
    key_overtaken,
    poll_skip,
    nonmonotonic_poll,
    early_timer,
    lying_cancel,
    contradicted_decision,
)


def judge(events: list[Event]) -> list[str]:
    """Return every fault of a history, `rule: sentence`; none when it keeps the promises."""
    history = History(events)
    return [f"{rule.__name__}: {fault}" for rule in RULES for fault in rule(history)]
