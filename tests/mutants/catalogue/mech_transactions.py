"""Transactions: halves, op records, decisions, checks, put-backs, message types."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

BROKER = "tests/integration/broker/features/test_transactions.py"
FOREIGN = "tests/integration/broker/features/test_transactions_foreign.py"
RETENTION_HOLD = "tests/integration/broker/features/test_transactions_retention_hold.py"
SERVICE = "tests/integration/proxy/services/test_transaction_service.py"
CLIENT = "tests/unit/pyddmq/test_client_transactions.py"
TYPES = "tests/integration/proxy/services/test_message_types.py"
ACCEPTANCE = "tests/acceptance/test_transactions.py"

MUTANTS = (
    Mutant(
        name="a half stands in the topic of its message",
        file="broker/transaction/puts.py",
        old="    return put._replace(topic=halves.topic(HALF_TOPIC), queue_id=0, properties",
        new="    halves.topic(HALF_TOPIC)\n    return put._replace(properties",
        caught_by=(
            f"{BROKER}::test_half_is_invisible_until_its_commit",
            f"{SERVICE}::test_half_is_stored_unseen_and_its_commit_delivers_it_once",
        ),
    ),
    Mutant(
        name="a half is checked once more than the bound",
        file="broker/transaction/checker.py",
        old="            elif asked.times >= self.settings.checks_max:\n",
        new="            elif asked.times > self.settings.checks_max:\n",
        caught_by=(f"{BROKER}::test_fifteen_checks_then_discard",),
    ),
    Mutant(
        name="a half that is resumed keeps its count of checks",
        file="broker/transaction/half.py",
        old="    return _copy(half, without(half.block, _COPIED), topic, 0)\n",
        new="    return _copy(half, half.block, topic, 0)\n",
        caught_by=(f"{BROKER}::test_fifteen_checks_then_discard",),
    ),
    Mutant(
        name="a discarded transaction cannot be decided by hand",
        file="proxy/operate/changes/transactions.py",
        old="        if row is not None and resumed:\n",
        new="        if row is None and resumed:\n",
        caught_by=(f"{ACCEPTANCE}::test_discarded_transactions_are_seen_decided_and_resumed",),
    ),
    Mutant(
        name="RocketMQ begins to read op records at the offset of the halves",
        file="broker/transaction/state.py",
        old="        self._offsets.set(GROUP, OP_TOPIC, 0, op_offset)\n",
        new="        self._offsets.set(GROUP, OP_TOPIC, 0, half_offset)\n",
        caught_by=(f"{FOREIGN}::test_rocketmq_finds_where_to_begin",),
    ),
    Mutant(
        name="a topic of ordinary messages takes those that ask for an order",
        file="broker/format/message_type.py",
        old="            return Mismatch.ORDER if kind.ordered else None\n",
        new="            return None\n",
        caught_by=(
            f"{TYPES}::test_publish_of_another_kind_is_refused_with_its_code",
            f"{TYPES}::test_type_is_kept_over_restart_and_changed_by_reload",
        ),
    ),
    Mutant(
        name="a topic's type stands under another name than RocketMQ's",
        file="broker/format/message_type.py",
        old='ATTRIBUTE = "message.type"\n',
        new='ATTRIBUTE = "messageType"\n',
        caught_by=("tests/interop/test_message_types.py::test_types_are_seen_by_rocketmq_and_its_changes_here",),
        seconds_max=600,
    ),
    Mutant(
        name="a listener that raises rolls back",
        file="pyddmq/client/checks.py",
        old="    return (LocalState.UNKNOWN, remark_of(answer)) if",
        new="    return (LocalState.ROLLBACK, remark_of(answer)) if",
        caught_by=(f"{CLIENT}::test_every_answer_and_failure_of_a_listener_becomes_a_state",),
    ),
    Mutant(
        name="the local transaction runs before its half is stored",
        file="pyddmq/client/transaction_producer.py",
        old="        half, attempts = self._call(HALF, half_arg",
        new="        self._listener.execute(message, arg)\n        half, attempts = self._call(HALF, half_arg",
        caught_by=(f"{CLIENT}::test_refused_half_raises_and_runs_nothing",),
    ),
    Mutant(
        name="an answer to a check is told with every fetch",
        file="pyddmq/client/checks.py",
        old="        self.answers.clear()\n",
        new="",
        caught_by=(f"{CLIENT}::test_checks_are_answered_in_the_background_with_the_next_fetch",),
    ),
    Mutant(
        name="a check that one poller has is given to the next",
        file="broker/transaction/checker.py",
        old="            due = halves.clock.monotonic() + self.settings.interval_ms / 1000\n",
        new="            due = halves.clock.monotonic()\n",
        caught_by=(
            f"{SERVICE}::test_two_pollers_never_hold_one_check",
            f"{BROKER}::test_checks_come_when_due_and_one_poller_has_each",
            "tests/integration/proxy/services/test_check_fetches.py::test_check_whose_producer_died_comes_again_after_the_interval",
        ),
    ),
    Mutant(
        name="a half is judged as an ordinary message",
        file="proxy/services/transaction_service.py",
        old="puts, ports, transactional=True, keyed=",
        new="puts, ports, transactional=False, keyed=",
        caught_by=(f"{SERVICE}::test_half_is_refused_by_the_rules_of_every_message",),
    ),
    Mutant(
        name="a retry of a message of a transaction is a half again",
        file="broker/transaction/puts.py",
        old="    if put.reconsume_times > 0 and delay_level > 0:\n",
        new="    if put.reconsume_times < 0 and delay_level > 0:\n",
        caught_by=(f"{BROKER}::test_retry_of_a_message_of_a_transaction_is_an_ordinary_one",),
    ),
    Mutant(
        name="a commit delivers at once what asked for a level",
        file="broker/transaction/ending.py",
        old="        return store.waiting(DelayedPuts).put(put, delay.level)\n",
        new="        return put\n",
        caught_by=(f"{BROKER}::test_commit_starts_the_delay",),
    ),
    Mutant(
        name="a delay runs from the half, not from its commit",
        file="broker/transaction/ending.py",
        old="    return store.waiting(TimedPuts).after(put, delay.delay_ms) if delay.delay_ms else put\n",
        new="    return store.waiting(TimedPuts).put(put, half.store_ms + delay.delay_ms) if delay.delay_ms else put\n",
        caught_by=(f"{BROKER}::test_commit_starts_a_relative_delay_and_keeps_a_moment",),
    ),
    Mutant(
        name="any group decides a transaction",
        file="broker/transaction/ending.py",
        old="        elif group is not None and group != half.group:\n",
        new="        elif group is None and group != half.group and False:\n",
        caught_by=(f"{SERVICE}::test_every_bad_decision_has_its_code_and_sentence_and_decides_nothing",),
    ),
    Mutant(
        name="the other decision is taken for the same",
        file="broker/transaction/ending.py",
        old="    if asked in (decided, State.UNKNOWN):\n",
        new="    if asked in State:\n",
        caught_by=(f"{BROKER}::test_decision_is_final",),
    ),
    Mutant(
        name="the op record of a rollback says that it was a commit",
        file="broker/transaction/ending.py",
        old="            self._ops.add(offset, Fate.ROLLED_BACK, partial(",
        new="            self._ops.add(offset, FATES[State.COMMIT], partial(",
        caught_by=(f"{BROKER}::test_rollback_is_an_op_record_and_nothing_else",),
    ),
    Mutant(
        name="a late decision of a producer is taken",
        file="broker/transaction/ending.py",
        old="        if late and half.immune:\n",
        new="        if late and not half.immune:\n",
        caught_by=(f"{BROKER}::test_immunity_puts_off_checks_and_late_decisions",),
    ),
    Mutant(
        name="each decision has an op record of its own",
        file="broker/transaction/ops.py",
        old="        if length and length + width > BODY_CHARS_MAX:\n",
        new="        if length:\n",
        caught_by=(f"{BROKER}::test_decisions_of_a_turn_share_an_op_record",),
    ),
    Mutant(
        name="an op record of RocketMQ's older form is not read",
        file="broker/transaction/ops.py",
        old="    if numbers and not numbers[-1]:\n        numbers.pop()\n",
        new="    numbers.pop()\n",
        caught_by=(f"{FOREIGN}::test_op_bodies_of_both_forms_are_read",),
    ),
    Mutant(
        name="the producer's clock decides when its half is checked",
        file="broker/transaction/checker.py",
        old="            due = arrival + (timeout if half.immunity_ms is None else half.immunity_ms / 1000)\n",
        new="            due = now + timeout + (half.born_ms - halves.clock.wall_ms()) / 1000\n",
        caught_by=(f"{RETENTION_HOLD}::test_producers_clock_has_no_say",),
    ),
    Mutant(
        name="a check writes an op record",
        file="broker/transaction/checker.py",
        old="            found.append(_check(offset, half, asked.times))\n",
        new="            found.append(_check(offset, half, asked.times))\n"
        "            self._ops.add(offset, Fate.MOVED)\n",
        caught_by=(f"{BROKER}::test_a_check_writes_nothing_to_the_log",),
    ),
    Mutant(
        name="a half that is put again begins to count anew",
        file="broker/transaction/retention_hold.py",
        old="        times = max(half.times, transactions.times_of(offset))\n",
        new="        times = half.times\n",
        caught_by=(f"{RETENTION_HOLD}::test_undecided_half_is_put_again_and_its_handle_stays_valid",),
    ),
    Mutant(
        name="a half that RocketMQ put again is two",
        file="broker/transaction/copies.py",
        old="        if half is not None and last.get(half.transaction_id, -1) > offset:\n",
        new="        if half is not None and last.get(half.transaction_id, -1) < 0:\n",
        caught_by=(f"{FOREIGN}::test_what_rocketmq_put_again_before_a_kill_is_one_transaction",),
    ),
    Mutant(
        name="undecided transactions are not counted by topic",
        file="broker/transaction/transactions.py",
        old="            metrics.counter(counted.PENDING, topic).value = count\n",
        new="            metrics.counter(counted.PENDING, topic).value = 0\n",
        caught_by=(f"{ACCEPTANCE}::test_undecided_transactions_are_listed_shown_and_decided",),
    ),
)
