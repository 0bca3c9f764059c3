"""What was asked of one timer and what was answered, and with it what may become of its message."""

from __future__ import annotations

from typing import NamedTuple

from tests.simulation.waits import Wait, Walls


class Moment(NamedTuple):
    """A wait of a message: when it was asked for, and until when the node had it (`Walls.early`)."""

    wait: Wait
    sent: float
    received: float


class TimerAccount:
    """The changes of one timer. Each is asked for with `asked`; it stays open where its answer is lost.

    Attributes:
        handle: Its name; "" once an open change may have given it another.
        cancelled: It is never to be delivered.
        too_late: It was delivered when that was answered, or is being.
        doubtful: A power loss may have undone a change, also one after which it was delivered.
    """

    def __init__(self, handle: str, wait: Wait, *, sent: float, received: float) -> None:
        self.handle = handle
        self.cancelled = False
        self.too_late = False
        self.doubtful = False
        self._moments = [Moment(wait, sent, received)]
        self._ever = list(self._moments)
        self._answered_at = -1.0
        self._open_cancel = False
        self._asked: Moment | None = None

    @property
    def may_be_cancelled(self) -> bool:
        """Whether it need not be delivered: a cancel was answered so, or not at all."""
        return self.cancelled or self._open_cancel

    def asked(self, wait: Wait | None, time: float) -> None:
        """Note that it is about to be cancelled, or rescheduled to `wait`."""
        if wait is None:
            self._open_cancel = self._open_cancel or not self.too_late
            return
        self._asked = Moment(wait, time, time)
        self._moments.append(self._asked)
        self._ever.append(self._asked)
        self.handle = ""

    def due(self, walls: Walls) -> tuple[int, float] | None:
        """The wall clock's time at which it is due, and seconds after which it is in any case; None while unknown.

        A level's message has waited for its delay by that time, whatever the clock does (D35); others have no such end.
        """
        if self.may_be_cancelled or len(self._moments) != 1:
            return None
        [(wait, sent, received)] = self._moments
        if wait.kind == "level":
            return 1 << 62, received + wait.ms / 1000
        return wait.ms if wait.kind == "at" else walls.highest(sent, received) + wait.ms, float("inf")

    def answered(self, outcome: str, handle: str, *, time: float, walls: Walls, doubtful: bool = False) -> str:
        """Note an answer; return what is wrong with it, "" for nothing.

        Args:
            outcome: cancelled, rescheduled, tooLate or unknown.
            handle: Its name from now on.
            time: When it was answered.
            walls: The clock by which it is due.
            doubtful: The unit of a timer may be damaged: then the timer may not be found, and comes at its moment.
        """
        asked, self._asked = self._asked, None
        self._answered_at = time
        known = "cancelled" if self.cancelled else "tooLate" if self.too_late else ""
        if outcome == "unknown" or (known and outcome != known):
            return f"was answered with {outcome}, {'having been ' + known if known else 'and it was acknowledged'}"
        self.handle = handle
        if outcome == "rescheduled":
            assert asked is not None
            self._moments = [asked]
            return "was rescheduled after its delivery" if self.too_late else ""
        if asked is not None:
            self._moments.remove(asked)
        if outcome == "cancelled":
            may, self.cancelled = asked is None or self._open_cancel or self.cancelled, True
            return "" if may else "was found cancelled by nobody"
        self._open_cancel = False
        if doubtful and self._early(time, walls):
            return ""
        self.too_late = True
        return "was answered with tooLate before its moment" if self._early(time, walls) else ""

    def undone(self, since: float) -> None:
        """Note that a power loss took what was not synced: what was answered since that time may hold, or not."""
        if self._answered_at >= since:
            self._open_cancel = self._open_cancel or self.cancelled
            self.cancelled = self.too_late = False
            self.doubtful = True
            self._moments = list(self._ever)
            self.handle = ""

    def delivered(self, time: float, walls: Walls) -> str:
        """Return what is wrong with a delivery, "" for nothing."""
        if self.cancelled:
            return "having been cancelled"
        return f"before its moment: {self._moments}" if self._early(time, walls) else ""

    def _early(self, time: float, walls: Walls) -> bool:
        return all(
            walls.early(wait, sent=sent, received=received, delivered=time) for wait, sent, received in self._moments
        )
