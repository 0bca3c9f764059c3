"""Promise 5: a half message is invisible until its commit is durable, and a decision is final."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

MUTANTS = (
    Mutant(
        "a half message is stored in the queue of its topic",
        "broker/transaction/transactions.py",
        old="    return put._replace(topic=halves.topic(HALF_TOPIC), queue_id=0, properties",
        new="""\
    halves.topic(HALF_TOPIC)
    return put._replace(properties""",
        caught_by=(
            "tests/integration/broker/features/test_transactions.py::test_half_is_invisible_until_its_commit",
            "tests/integration/proxy/services/test_transaction_service.py::test_half_is_stored_unseen_and_its_commit_delivers_it_once",
        ),
    ),
    Mutant(
        "a rollback after a commit is accepted",
        "broker/transaction/ending.py",
        old="    if asked in (decided, State.UNKNOWN):\n",
        new="    if asked in State:\n",
        caught_by=("tests/integration/broker/features/test_transactions.py::test_decision_is_final",),
    ),
    Mutant(
        "any producer group can decide a transaction",
        "broker/transaction/ending.py",
        old="        elif group is not None and group != half.group:\n",
        new="        elif group is None and group != half.group and False:\n",
        caught_by=(
            "tests/integration/proxy/services/test_transaction_service.py::test_every_bad_decision_has_its_code_and_sentence_and_decides_nothing",
        ),
    ),
    Mutant(
        "an undecided half is checked once more than the maximum",
        "broker/transaction/checker.py",
        old="            elif asked.times >= self.settings.checks_max:\n",
        new="            elif asked.times > self.settings.checks_max:\n",
        caught_by=("tests/integration/broker/features/test_transactions.py::test_fifteen_checks_then_discard",),
    ),
    Mutant(
        "one check is given to two pollers",
        "broker/transaction/checker.py",
        old="            due = halves.clock.monotonic() + self.settings.interval_ms / 1000\n",
        new="            due = halves.clock.monotonic()\n",
        caught_by=(
            "tests/integration/proxy/services/test_transaction_service.py::test_two_pollers_never_hold_one_check",
            "tests/integration/broker/features/test_transactions.py::test_checks_come_when_due_and_one_poller_has_each",
        ),
    ),
    Mutant(
        "the producer's clock decides when a half is checked",
        "broker/transaction/checker.py",
        old="            due = arrival + (timeout if half.immunity_ms is None else half.immunity_ms / 1000)\n",
        new="            due = now + timeout + (half.born_ms - halves.clock.wall_ms()) / 1000\n",
        caught_by=(
            "tests/integration/broker/features/test_transactions_retention_hold.py::test_producers_clock_has_no_say",
        ),
    ),
    Mutant(
        "a half that retention moves gets all its checks again",
        "broker/transaction/retention_hold.py",
        old="        times = max(half.times, transactions.times_of(offset))\n",
        new="        times = half.times\n",
        caught_by=(
            "tests/integration/broker/features/test_transactions_retention_hold.py::test_undecided_half_is_put_again_and_its_handle_stays_valid",
        ),
    ),
    Mutant(
        "the client runs the local transaction before its half is stored",
        "pyddmq/client/checks.py",
        old="    half, attempts = await call(half_request",
        new="""\
    await listener.execute(message, arg)
    half, attempts = await call(half_request""",
        caught_by=("tests/unit/pyddmq/test_client_transactions.py::test_refused_half_raises_and_runs_nothing",),
    ),
)
