"""Replies to dead connections that count as deliveries: W9."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

WIRE = "tests/integration/proxy/services/test_ddmq_faults_wire.py"
GONE = "tests/hostile/test_peers_gone.py"
GROUP = "tests/unit/upstream/delivery/test_group.py"

MUTANTS = (
    Mutant(
        name="a reply that never left is a delivery that burns a retry",
        file="upstream/outcomes/outcomes.py",
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
        file="proxy/port/connection.py",
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
        file="proxy/port/replying.py",
        old="                if self._peer.gone():\n",
        new="                if self._peer is None:\n",
        caught_by=(f"{GONE}::test_messages_leave_for_nobody_whose_end_lies_unread_in_the_socket",),
        rows=("W9",),
    ),
    Mutant(
        name="a reset gives back nothing of what was written",
        file="proxy/port/connection.py",
        old="                if acknowledged is not None and acknowledged <= begin + 1:\n",
        new="                if acknowledged is not None and acknowledged < 0:\n",
        caught_by=(f"{GONE}::test_reset_gives_back_what_the_peer_acknowledged_nothing_of",),
        rows=("W9",),
    ),
    Mutant(
        name="parked pulls of a client that left wait on",
        file="proxy/port/connection.py",
        old="        self.withdraw_waiting()\n        self._close_when_done()\n",
        new="        self._close_when_done()\n",
        caught_by=(f"{WIRE}::test_parked_pull_of_a_client_that_left_gets_nothing",),
        rows=("W9",),
    ),
    Mutant(
        name="nothing stands in for a reply that went back",
        file="proxy/port/replying.py",
        old='                    data, lost = lost() or b"", None\n',
        new='                    lost()\n                    data, lost = b"", None\n',
        caught_by=(f"{GONE}::test_client_that_only_sends_no_more_reads_an_empty_reply",),
    ),
    Mutant(
        name="what a client sends says nothing of the replies it has",
        file="proxy/port/connection.py",
        old="        self._carried.clear()\n        server = self._server\n",
        new="        server = self._server\n",
        caught_by=(f"{GONE}::test_reply_to_a_client_that_was_heard_of_since_waits_for_its_timeout",),
    ),
    Mutant(
        name="the system is asked for resets and not for ends",
        file="proxy/port/network.py",
        old="            poll.register(self._descriptor, _RDHUP)\n",
        new="            poll.register(self._descriptor, 0)\n",
        caught_by=(f"{GONE}::test_kernel_tells_of_peers_before_the_loop_does",),
    ),
    Mutant(
        name="bytes received are read where those acknowledged stand",
        file="proxy/port/network.py",
        old="_BYTES_ACKED_AT = 120\n",
        new="_BYTES_ACKED_AT = 128\n",
        caught_by=(f"{GONE}::test_kernel_tells_of_peers_before_the_loop_does",),
    ),
)
