"""Pulls that wait: W51 to W54."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

BUFFER = "tests/unit/upstream/waiting/test_buffer.py"

MUTANTS = (
    Mutant(
        name="one arrival of many wakes one pull",
        file="upstream/waiting/buffer.py",
        old="""            self.unpark(parked)
            parked.wake(batch)
""",
        new="""            self.unpark(parked)
            parked.wake(batch)
            return
""",
        caught_by=(f"{BUFFER}::test_one_arrival_of_many_wakes_many",),
        rows=("W51", "W53"),
    ),
    Mutant(
        name="what may be handed out again wakes nobody",
        file="upstream/waiting/buffer.py",
        old="""        if line is not None:
            self.wake(line)
""",
        new="",
        caught_by=(f"{BUFFER}::test_retry_and_timeout_wake_a_parked_pull",),
        rows=("W53",),
    ),
    Mutant(
        name="pulls bound to a topic hide those for any",
        file="upstream/waiting/buffer.py",
        old="        for waiting in (self._parked, self._parked_at[line.topic]):\n",
        new="        for waiting in (self._parked_at[line.topic] or self._parked,):\n",
        caught_by=(f"{BUFFER}::test_parked_pulls_are_served_in_order_of_arrival_bound_or_not",),
        rows=("W52",),
    ),
    Mutant(
        name="a pull for any topic that found nothing becomes bound to the topic it looked at",
        file="upstream/waiting/buffer.py",
        old="        parked = Parked(self._numbers, topic, count_max, holder, wake)\n",
        new="        topic = topic or next(iter(self._lines), None)\n"
        "        parked = Parked(self._numbers, topic, count_max, holder, wake)\n",
        caught_by=(f"{BUFFER}::test_parked_pulls_are_served_in_order_of_arrival_bound_or_not",),
        rows=("W54",),
    ),
)
