"""The checkers' own account of a run: what was acknowledged to whom, and which promise the node broke.

The account knows nothing of the node's insides. Clients enter what they sent, got and answered; the harness enters
what is in the store at the end. Two promises are checked the moment something is delivered (2 and 7), the others by
`check` at the end, over the complete history.

The sentences it holds the node to:

1. A publish answered with code 0 is in the log exactly once, where its receipt says, byte for byte (also after kills
   and, under sync flush, power losses). One answered with a refusal is not there.
2. A success whose carrying call was answered is never delivered to that group again; a power loss may bring back
   those of its last 100 ms (D9).
3. Of one key (group, topic, key) never two are out at once (D12), a message is handed out only when every earlier one
   of its key was answered with success or dead-lettered, and no earlier one comes after a later one.
6. In the end every stored message was, for every group that wants it, answered with success or dead-lettered, with
   a reason and where it came from; and nothing was dead-lettered twice or without enough attempts.
7. What was refused changed nothing; an offset names one message for ever.
8. A message that is to wait is not delivered before its moment; 1 holds for it when its moment has come. A timer that
   was answered as cancelled is never delivered, one that was rescheduled once, at its new moment, and one for which it
   was too late was due. No other is unknown.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping

from tests.simulation.accounts import Account, Answer, Delivery, Subscription
from tests.simulation.facts import DeadLetter, Place, PromiseBroken, Publish, Stamp, Stored
from tests.simulation.power import ACK_LOSS_SECONDS, SLACK_SECONDS, LogCut, PowerLoss, PowerLosses
from tests.simulation.resets import Resets
from tests.simulation.retry_places import RetryPlaces
from tests.simulation.timer_account import TimerAccount
from tests.simulation.waits import Wait, Walls

__all__ = ["DeadLetter", "Ledger", "Place", "PromiseBroken", "Publish", "Stamp", "Stored", "Subscription"]


class Ledger:
    """The account; see the module's sentences.

    Args:
        subscriptions: Every (group, topic) that is consumed.
        ack_loss_seconds: How old an ack may be and still go with the power; 0 under `ackFlush: sync`.
        walls: The wall clock's history; without it no message waits.
    """

    def __init__(
        self,
        subscriptions: Iterable[Subscription],
        *,
        ack_loss_seconds: float = ACK_LOSS_SECONDS,
        walls: Walls | None = None,
    ) -> None:
        self._walls = walls
        self.ack_loss_seconds = ack_loss_seconds
        self.subscriptions = {(each.group, each.topic): each for each in subscriptions}
        self.publishes: dict[int, Publish] = {}
        self.places: dict[Place, int] = {}
        self.accounts: dict[tuple[str, Place], Account] = defaultdict(Account)
        self.given_up: set[tuple[str, Place]] = set()
        """Messages that an operator gave up: their dead letters need no attempts."""
        self.lost: set[Place] = set()
        """Messages whose records the disk does not give out any more."""
        self.unfinished: Counter[tuple[str, str]] = Counter()
        """By group and topic: those of them that no success and no dead letter finished; found by `check`."""
        self.power_losses = PowerLosses()
        """Messages whose dead letters may have gone so; found by `check`."""
        self._recent_ends: list[tuple[int, float]] = []
        """Lives, and when they ended, from the last one that served on."""
        self.retries = RetryPlaces()
        self._answered_itself: set[tuple[str, Place]] = set()
        """Messages with a success of their own since the last reset, not of a copy in the retry topic."""
        self.resets = Resets()
        self.expires = False
        """The node deletes log files, though a group has not finished what is in them."""
        self.damaged_timers = False
        """Units of timers were damaged: the answer "too late" to a change says nothing then."""
        self.life = 0

    def note(self, time: float, text: str) -> None:
        """Record an event that no promise covers; histories show it."""

    def numbered(self, op: str, time: float, **fields: object) -> None:
        """Record what a producer that numbers its messages tried; journals have it."""

    def sent_ms(self, publish: Publish) -> int:
        """What the wall clock showed when a publish was answered, or sent where it was not."""
        assert self._walls is not None
        return self._walls.at((publish.settled or publish.sent).time)

    # What clients enter.

    def sent(self, publish: Publish) -> None:
        """Note a publish that is about to be sent."""
        self.publishes[publish.uid] = publish

    def settled(self, uid: int, outcome: str, stamp: Stamp, receipt: tuple[str, int] | None = None) -> None:
        """Note the answer to a publish (stored or refused), or that none will come (unknown)."""
        publish = self.publishes[uid]
        if outcome == "stored" and self.is_gone(uid, stamp):
            # Read after the power loss that took it.
            outcome, receipt = "unknown", None
        publish.outcome = outcome
        publish.settled = stamp
        if receipt is not None:
            publish.receipt = receipt
            self._place(Place(publish.topic, *receipt), uid)

    def timer_made(self, uid: int, handle: str) -> None:
        """Note the handle of an acknowledged timer, by which it may be changed."""
        publish = self.publishes[uid]
        assert publish.wait is not None
        assert publish.settled is not None
        publish.timer = TimerAccount(handle, publish.wait, sent=publish.sent.time, received=publish.settled.time)

    def timer_asked(self, uid: int, wait: Wait | None, time: float) -> None:
        """Note that a timer is about to be moved to another moment, or cancelled (None)."""
        timer = self.publishes[uid].timer
        assert timer is not None
        timer.asked(wait, time)

    def timer_answered(self, uid: int, outcome: str, *, handle: str, time: float) -> None:
        """Note what became of a change of a timer, as `TimerAccount.answered`. Raises PromiseBroken: 8."""
        timer = self.publishes[uid].timer
        assert timer is not None
        assert self._walls is not None
        problem = timer.answered(outcome, handle, time=time, walls=self._walls, doubtful=self.damaged_timers)
        if problem:
            raise PromiseBroken(8, f"the timer of message {uid} {problem}")

    def delivered(
        self,
        group: str,
        place: Place,
        client: str,
        stamp: Stamp,
        *,
        uid: int,
        key: str | None,
        tag: str | None,
        body: bytes,
    ) -> None:
        """Note a message that a client has read.

        Raises:
            PromiseBroken: 1, 2 or 7, at once.
        """
        if self.is_gone(uid, stamp):
            return
        copy = place
        place = self.retries.delivered(group, place, uid)
        self._place(place, uid)
        publish = self.publishes[uid]
        self._same(publish, f"delivered to {group}", place.topic, key or "", tag or "", body)
        if publish.outcome == "refused":
            raise PromiseBroken(7, f"message {uid} was refused and delivered to {group}")
        self._check_moment(group, publish, stamp)
        rules = self.subscriptions.get((group, place.topic))
        if rules is None or not rules.wants(publish):
            raise PromiseBroken(7, f"message {uid} (tag {tag!r}) does not belong to {group}")
        if self.resets.since(group, place, stamp):
            # Decided before a reset, and read after it.
            return
        account = self.accounts[group, place]
        passed_over = self.resets.passed_over(group, place)
        if passed_over is not None and (passed_over, place) not in account.confirmed:
            account.confirmed.append((passed_over, place))
        delivery = Delivery(place, uid, client, stamp, copy)
        self._check_acked(group, account, delivery)
        account.deliveries.append(delivery)

    # The group, then who answers what, how, and when.
    def answered(  # noqa: PLR0917
        self,
        group: str,
        place: Place,
        client: str,
        stamp: Stamp,
        success: bool,
        of: Stamp | None = None,
        named: bool = False,
    ) -> None:
        """Note a result that has reached the node; `of` and `named` as for `Answer`."""
        if named and self.is_of_gone(place, of, by_life=stamp.life):
            return
        if success:
            self._answered_itself.add((group, place))
        self.accounts[group, self.retries.of(group, place)].answers.append(Answer(stamp, client, success, of, named))

    def confirmed(self, group: str, place: Place, stamp: Stamp, of: Stamp | None = None) -> None:
        """Note that the call which carried a success was answered: from now on it counts (D9); `of` as for `Answer`."""
        if self.is_of_gone(place, of):
            return
        origin = self.retries.of(group, place)
        back = self.resets.taken_back_at(group, origin)
        if back is not None and stamp.sequence < back.sequence:
            # Written before a reset that has forgotten the success, and read after it.
            return
        account = self.accounts[group, origin]
        if account.first_success() is not None:
            account.confirmed.append((stamp, place))

    # What the harness enters.

    def reset(self, group: str, topic: str, to: Mapping[str, int], stamp: Stamp) -> None:
        """Note that an operator moved a group, each queue (by qid) to an offset: from there all comes anew."""
        self.resets.note(group, topic, to, stamp)
        self._answered_itself = {each for each in self._answered_itself if each[0] != group or each[1].topic != topic}
        for each, place in list(self.accounts):
            if each == group and place.topic == topic and place.offset >= to.get(place.qid, 1 << 62):
                del self.accounts[each, place]

    def acks_lost(self, time: float) -> None:
        """Note that the ack journal cannot be read whole: any ack of the life that ended last may be gone."""
        self.power_losses.append(PowerLoss(self.life - 1, time, time, by_disk=False))

    def unsynced_from(self, time: float) -> None:
        """Note that a sync failed then and the power is lost now: 100 ms of acks before it may be gone, too."""
        self.power_losses.append(PowerLoss(self.life, time, self.ack_loss_seconds, by_disk=False))

    def ended(self, *, power_lost: bool, time: float, seconds: float | None = None, ready: bool = True) -> None:
        """Note the end of the node's process; the next stamps belong to the next one.

        Args:
            power_lost: Whether the power went, too.
            time: When.
            seconds: How old an ack may be and still have gone with it, as the disk saw it; None: `ack_loss_seconds`.
            ready: Whether it had begun to serve: until then, what the process before it wrote last is not durable.
        """
        if ready:
            self._recent_ends.clear()
        self._recent_ends.append((self.life, time))
        if power_lost:
            window = self.ack_loss_seconds if seconds is None else seconds
            self.power_losses += [
                PowerLoss(life, at, window, by_disk=seconds is not None) for life, at in self._recent_ends
            ]
        self.life += 1
        for publish in self.publishes.values():
            # What the dead process did not answer will never be answered.
            if publish.outcome == "pending" and publish.sent.life < self.life:
                publish.outcome = "unknown"

    def taken(
        self,
        present: Mapping[Place, int],
        retries: Mapping[Place, int],
        *,
        seconds: float,
        failed_at: float | None = None,
    ) -> set[int]:
        """Forget what a power loss took from the log, under `flush: async`; its places may name others from now on.

        Args:
            present: What the log has after the restart.
            retries: Likewise, of retry topics.
            seconds: How old an acknowledged publish may be and still go with the power.
            failed_at: When a write or sync failed before: they count from there.

        Returns:
            What is gone for good, or may be, of that which was acknowledged or read.

        Raises:
            PromiseBroken: Something older is gone.
        """
        lost_at = self._recent_ends[0][1] if failed_at is None else failed_at
        since = lost_at - seconds - SLACK_SECONDS
        taken = {place for place, uid in self.places.items() if present.get(place) != uid} | self.retries.taken(retries)
        queues = frozenset((place.topic, place.qid) for place in taken)
        there = {**present, **retries}
        cut = LogCut(self.life - 1, self._recent_ends[-1][1], since, there, frozenset(present.values()), queues)
        self.power_losses.cuts.append(cut)
        gone = {uid for place, uid in self.places.items() if present.get(place) != uid}
        for publish in self.publishes.values():
            if publish.timer is not None:
                publish.timer.undone(since)
            if publish.uid in cut.uids or publish.outcome != "stored":
                continue
            assert publish.settled is not None
            if publish.settled.time < since:
                if publish.wait is not None:
                    # It waits, or is to come once more.
                    continue
                raise PromiseBroken(1, f"message {publish.uid} was acknowledged at {publish.settled} and is lost")
            publish.outcome, publish.receipt = "unknown", None
            if publish.timer is not None:
                publish.timer.handle = ""
            gone.add(publish.uid)
        for place in [place for place, uid in self.places.items() if present.get(place) != uid]:
            del self.places[place]
            for group, _ in self.subscriptions:
                self.accounts.pop((group, place), None)
        return {uid for uid in gone if self.publishes[uid].outcome != "stored"}

    @property
    def cuts(self) -> list[LogCut]:
        """The power losses that may have taken records from the log."""
        return self.power_losses.cuts

    def is_gone(self, uid: int, stamp: Stamp) -> bool:
        """Whether something that a process told of a message is of one that the power took after that."""
        return any(each.life >= stamp.life and uid not in each.uids for each in self.cuts)

    def is_of_gone(self, place: Place, of: Stamp | None, *, by_life: int | None = None) -> bool:
        """Whether an answer is to a message that the power took, whose place may have another one now.

        With `by_life`, whether the process that gets it knows that: the one that began with the loss.
        """
        return of is not None and any(
            each.life >= of.life and place not in each.present and by_life in (None, each.life + 1)
            for each in self.cuts
        )

    def outstanding(self) -> dict[str, int]:
        """Count what a kill now would catch in the middle: publishes, messages out, acks not answered yet."""
        publishes = sum(publish.outcome == "pending" for publish in self.publishes.values())
        out = acks = 0
        for account in self.accounts.values():
            if account.deliveries and not account.confirmed:
                answered = account.first_success() is not None
                acks += answered
                out += not answered and account.deliveries[-1].stamp.life == self.life
        return {"publishes": publishes, "deliveries": out, "acks": acks}

    def check(self, stored: Iterable[Stored], dead: Iterable[DeadLetter]) -> None:
        """Hold the complete history against the promises.

        Args:
            stored: Every record of every topic that producers send to, at the end.
            dead: Every record of every dead-letter topic, at the end.

        Raises:
            PromiseBroken: The first promise found broken.
        """
        records = sorted(stored, key=lambda record: record.physical)
        self._check_log(records)
        letters = self._check_dead(dead)
        for (group, _), account in self.accounts.items():
            # Clients read in another order than the node wrote.
            account.deliveries.sort(key=lambda delivery: delivery.stamp.sequence)
            for delivery in account.deliveries:
                self._check_acked(group, account, delivery)
        for rules in self.subscriptions.values():
            mine = [each for each in records if each.place not in self.lost and rules.wants(self.publishes[each.uid])]
            self._check_complete(rules, mine, letters)
            chains: dict[str, list[Place]] = defaultdict(list)
            for record in mine:
                key = rules.key_of(self.publishes[record.uid])
                if key is not None:
                    chains[key].append(record.place)
            for key, places in chains.items():
                self._check_in_flight(rules, key, places)
                self._check_order(rules, key, places, letters)

    # Inside.

    def _place(self, place: Place, uid: int) -> None:
        if uid not in self.publishes:
            raise PromiseBroken(1, f"{place} holds message {uid}, which nobody sent")
        if self.places.setdefault(place, uid) != uid:
            raise PromiseBroken(7, f"{place} named message {self.places[place]} and now names {uid}")
        self.retries.published(place, uid)

    def _same(self, publish: Publish, where: str, *seen: object) -> None:
        if seen != (publish.topic, publish.key, publish.tag, publish.body):
            raise PromiseBroken(1, f"message {publish.uid} was changed when {where}: {seen}")

    def _check_moment(self, group: str, publish: Publish, stamp: Stamp) -> None:
        """Nothing comes early, and nothing that was cancelled."""
        if publish.wait is None or self._walls is None:
            return
        received = stamp.time if publish.settled is None else publish.settled.time
        timer = publish.timer or TimerAccount("", publish.wait, sent=publish.sent.time, received=received)
        problem = timer.delivered(stamp.time, self._walls)
        if problem:
            raise PromiseBroken(8, f"message {publish.uid} came to {group} at {stamp}, {problem}")

    def _check_acked(self, group: str, account: Account, delivery: Delivery) -> None:
        """Nothing is delivered after its success was answered, but for acks that went with the power (D9).

        A reset moves a group on a topic, not on its retry topic: what waited there comes besides, whatever became of
        the message itself, and the other way round.
        """
        place, delivered = delivery.place, delivery.stamp
        apart = self.resets.touched(group, place)
        for confirmed, copy in account.confirmed:
            if apart and copy != delivery.copy:
                continue
            if delivered.life == confirmed.life and (delivered.asked <= confirmed.turn or delivered.late):
                continue
            if delivered.life < confirmed.life:
                continue
            if delivered.life > confirmed.life and self.power_losses.may_take(confirmed, place):
                continue
            raise PromiseBroken(
                2, f"{place} came to {group} again at {delivered} after its success was answered at {confirmed}"
            )

    def _check_log(self, records: list[Stored]) -> None:
        found: dict[int, Stored] = {}
        for record in records:
            self._place(record.place, record.uid)
            publish = self.publishes[record.uid]
            self._same(publish, "stored", record.place.topic, record.key, record.tag, record.body)
            if record.uid in found and not (publish.timer is not None and publish.timer.doubtful):
                raise PromiseBroken(
                    1, f"message {record.uid} is stored twice: {found[record.uid].place}, {record.place}"
                )
            found[record.uid] = record
            if publish.outcome == "refused":
                raise PromiseBroken(7, f"message {record.uid} was refused and is stored at {record.place}")
            if publish.cancelled:
                raise PromiseBroken(8, f"message {record.uid} was cancelled and is delivered at {record.place}")
        for publish in self.publishes.values():
            record_or_none = found.get(publish.uid)
            if publish.outcome == "stored" and record_or_none is None and not publish.may_be_cancelled:
                raise PromiseBroken(1, f"message {publish.uid} was acknowledged at {publish.settled} and is lost")
        there = {(record.place, record.uid) for record in records}
        for place, uid in self.places.items():
            if (place, uid) not in there:
                raise PromiseBroken(1, f"message {uid} was seen at {place} and is not there at the end")
        members = {publish.uid: publish.batch for publish in self.publishes.values() if not publish.may_be_cancelled}
        batches = Counter(members.values())
        # Under `flush: async` the power takes the middle of a batch, too.
        cut = {each.batch for each in self.publishes.values() if self.is_gone(each.uid, each.sent)}
        for batch, count in Counter(members[uid] for uid in found if uid in members).items():
            torn = batch in cut or (batch and self._torn_by_power(self.publishes[batch]))
            if batch and count != batches[batch] and not torn:
                raise PromiseBroken(1, f"of the batch that begins with message {batch}, {count} are stored")
        # Nothing sent after another was acknowledged may stand before it in the log.
        settled_after = None
        for record in reversed(records):
            publish = self.publishes[record.uid]
            if publish.wait is not None:
                continue
            if settled_after is not None and publish.sent.sequence > settled_after.sequence:
                raise PromiseBroken(
                    3, f"message {record.uid} stands in the log before one acknowledged before it was sent"
                )
            if publish.outcome == "stored" and publish.settled is not None:
                settled_after = min(settled_after or publish.settled, publish.settled)

    def _torn_by_power(self, first: Publish) -> bool:
        """Whether a batch was never answered and went, in part, with the power of a real process.

        What stands behind the hole that the power left in it is kept (D3), and so are its members around the hole.
        """
        return first.outcome == "unknown" and any(
            each.by_disk and each.life == first.sent.life for each in self.power_losses
        )

    def _check_dead(self, dead: Iterable[DeadLetter]) -> dict[tuple[str, Place], DeadLetter]:
        letters: dict[tuple[str, Place], DeadLetter] = {}
        count: Counter[tuple[str, Place]] = Counter()
        for letter in dead:
            is_moved = self.places.get(letter.origin) != letter.uid
            if is_moved and self.is_gone(letter.uid, self.publishes[letter.uid].sent):
                # It stands behind the hole that the power left of its message.
                continue
            count[letter.group, letter.origin] += 1
            again = self.resets.taken_back(letter.group, letter.origin)
            if self.publishes[letter.uid].wait is not None:
                # It may have been delivered to the same place anew, and the first of its letters be left.
                again += len(self.cuts)
            if count[letter.group, letter.origin] > 1 + again:
                raise PromiseBroken(6, f"{letter.origin} was dead-lettered twice for {letter.group}")
            letters[letter.group, letter.origin] = letter
            if self.places.get(letter.origin) != letter.uid:
                raise PromiseBroken(
                    6, f"a dead letter of {letter.group} names {letter.origin}, which is not message {letter.uid}"
                )
            publish = self.publishes[letter.uid]
            if publish.body != letter.body or not letter.reason:
                raise PromiseBroken(6, f"the dead letter of {letter.origin} lacks its reason or its body")
            rules = self.subscriptions[letter.group, letter.origin.topic]
            if rules.stops and (letter.group, letter.origin) not in self.given_up:
                raise PromiseBroken(6, f"{letter.origin} was dead-lettered where an operator decides: {letter.reason}")
            hopeless = (rules.json and not publish.json) or (letter.group, letter.origin) in self.given_up
            # It is kept as a dead letter when its log file goes.
            hopeless = hopeless or (self.expires and letter.reason.startswith("expired: "))
            if not hopeless and not rules.rules_vary and letter.attempts <= min(rules.intervals, rules.retry_max):
                raise PromiseBroken(
                    6, f"{letter.origin} was dead-lettered after {letter.attempts} attempts: {letter.reason}"
                )
        return letters

    def _check_complete(
        self, rules: Subscription, records: list[Stored], letters: dict[tuple[str, Place], DeadLetter]
    ) -> None:
        for record in records:
            account = self.accounts.get((rules.group, record.place))
            letter = letters.get((rules.group, record.place))
            publish = self.publishes[record.uid]
            if self.resets.passed_over(rules.group, record.place) is not None:
                continue
            if rules.json and not publish.json:
                if letter is None or (account is not None and account.deliveries):
                    raise PromiseBroken(6, f"{record.place} is not JSON: {rules.group} must dead-letter it undelivered")
            elif letter is None and (account is None or account.first_success() is None):
                if record.place in self.lost:
                    self.unfinished[rules.group, record.place.topic] += 1
                    continue
                seen = "never" if account is None else f"{len(account.deliveries)} times"
                raise PromiseBroken(
                    6, f"{record.place} (message {record.uid}) was {seen} delivered to {rules.group} and dropped"
                )
            elif letter is None and account is not None and not self._came_itself(rules.group, record.place, account):
                raise PromiseBroken(6, f"{rules.group} was moved back, and {record.place} came only as a retry")

    def _came_itself(self, group: str, place: Place, account: Account) -> bool:
        """Whether a message that a reset took back came again, and not only a copy of it that waited."""
        if self.resets.taken_back_at(group, place) is None or (group, place) in self._answered_itself:
            return True
        return any(each.copy == place for each in account.deliveries)

    def _check_in_flight(self, rules: Subscription, key: str, places: list[Place]) -> None:
        """Two deliveries overlap unless the earlier was answered by its holder or timed out, or its process died.

        Answered is what its client answered: an answer to an earlier delivery is none, but for what D40 leaves
        (`Account.is_answered`).
        """
        accounts = [self.accounts[rules.group, place] for place in places if (rules.group, place) in self.accounts]
        deliveries = sorted(
            ((each, account) for account in accounts for each in account.deliveries if not each.stamp.late),
            key=lambda pair: pair[0].stamp.sequence,
        )
        out: list[tuple[Delivery, Account]] = []
        for delivery, account in deliveries:
            out = [pair for pair in out if self._still_out(rules, *pair, delivery.stamp)]
            if out:
                other = out[0][0]
                raise PromiseBroken(
                    3,
                    f"key {key!r} of {rules.group} has two in flight: {other.place} to {other.client} at {other.stamp} "
                    f"and {delivery.place} to {delivery.client} at {delivery.stamp}",
                )
            out.append((delivery, account))

    def _still_out(self, rules: Subscription, delivery: Delivery, account: Account, now: Stamp) -> bool:
        # The node counts from when it handed the message out: not before it was asked for.
        stamp = delivery.stamp
        since = stamp.time if stamp.asked_time is None else stamp.asked_time
        if now.life != stamp.life or now.time >= since + rules.timeout - SLACK_SECONDS:
            return False
        return not account.is_answered(delivery, now.turn)

    def _check_order(
        self, rules: Subscription, key: str, places: list[Place], letters: dict[tuple[str, Place], DeadLetter]
    ) -> None:
        # What a reset took back is compared with what was handed out after it: by the turn and sequence of the reset.
        last: dict[int, Delivery] = {}
        open_until: dict[int, tuple[int, Place]] = {}
        for place in places:
            account = self.accounts.get((rules.group, place))
            deliveries = [each for each in account.deliveries if not each.stamp.late] if account is not None else []
            back = self.resets.taken_back_at(rules.group, place)
            since, turn = (0, 0) if back is None else (back.sequence, back.turn)
            if deliveries:
                self._check_first(rules, key, deliveries[0], last, open_until)
            for delivery in deliveries:
                if account is not None and self.power_losses.excuse(account, delivery):
                    continue
                if since not in last or delivery.stamp.sequence > last[since].stamp.sequence:
                    last[since] = delivery
            if (rules.group, place) not in letters:
                success = account.first_success() if account is not None else None
                if success is None and place in self.lost:
                    continue
                passed_over = self.resets.passed_over(rules.group, place)
                until = min((each.turn for each in (success, passed_over) if each is not None), default=1 << 62)
                if until > open_until.get(turn, (0, place))[0]:
                    open_until[turn] = (until, place)

    def _check_first(
        self,
        rules: Subscription,
        key: str,
        delivery: Delivery,
        last: Mapping[int, Delivery],
        open_until: Mapping[int, tuple[int, Place]],
    ) -> None:
        """A first delivery: every earlier message of its key is finished, and none comes again after it."""
        place, first = delivery.place, delivery.stamp
        for turn, (until, open_place) in open_until.items():
            if turn <= first.turn < until:
                raise PromiseBroken(
                    3, f"{place} of key {key!r} came to {rules.group} at {first} before {open_place} was finished"
                )
        for since, before in last.items():
            if since < first.sequence < before.stamp.sequence:
                again = f"{before.place} came again at {before.stamp}"
                raise PromiseBroken(3, f"key {key!r} of {rules.group}: {again}, after {place} at {first}")
