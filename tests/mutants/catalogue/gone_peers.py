"""Replies to dead connections that count as deliveries: W9."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

WIRE = "tests/integration/test_ddmq_faults_wire.py"
GONE = "tests/hostile/test_peers_gone.py"
GROUP = "tests/unit/test_group.py"

MUTANTS = (
    Mutant(
        name="a reply that never left is a delivery that burns a retry",
        file="upstream/outcomes.py",
        old="""                self.leave_delivery(job)
                job.deliveries -= 1
                back.append(job)
""",
        new="""                delivery = job.delivery
                self.leave_delivery(job)
                self._time_out(job, delivery, back)
""",
        caught_by=(
            f"{WIRE}::test_replies_that_never_left_are_no_deliveries",
            f"{WIRE}::test_replies_to_a_closed_connection_are_no_deliveries",
            f"{GROUP}::test_given_back_reply_comes_at_once_and_burns_no_retry",
        ),
        rows=("W9",),
    ),
    Mutant(
        name="replies that lie unwritten when their connection ends are taken for delivered",
        file="proxy/connection.py",
        old="""            if lost is not None:
                lost()
        self._server.forget(self)
""",
        new="""            pass
        self._server.forget(self)
""",
        caught_by=(f"{WIRE}::test_replies_that_never_left_are_no_deliveries",),
        rows=("W9",),
    ),
    Mutant(
        name="a reply leaves for a peer whose end lies unread",
        file="proxy/replying.py",
        old="                if self._peer.gone():\n",
        new="                if self._peer is None:\n",
        caught_by=(f"{GONE}::test_messages_leave_for_nobody_whose_end_lies_unread_in_the_socket",),
        rows=("W9",),
    ),
    Mutant(
        name="a reset gives back nothing of what was written",
        file="proxy/connection.py",
        old="                if acknowledged is not None and acknowledged <= begin + 1:\n",
        new="                if acknowledged is not None and acknowledged < 0:\n",
        caught_by=(f"{GONE}::test_reset_gives_back_what_the_peer_acknowledged_nothing_of",),
        rows=("W9",),
    ),
    Mutant(
        name="parked pulls of a client that left wait on",
        file="proxy/connection.py",
        old="""            if slot.withdraw is not None:
                slot.withdraw()
        self._close_when_done()
""",
        new="""            pass
        self._close_when_done()
""",
        caught_by=(f"{WIRE}::test_parked_pull_of_a_client_that_left_gets_nothing",),
        rows=("W9",),
    ),
)
