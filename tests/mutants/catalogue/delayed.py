"""DDMQ's faults of delayed messages: W58, W75 to W78, W86 to W91."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

LOOPS = "tests/integration/broker/scheduled/test_loops.py"
SERVED = "tests/integration/proxy/node/test_loops_node.py"
UNFOLD = "tests/integration/broker/scheduled/test_loop_unfold.py"
STOPS = "tests/integration/broker/scheduled/test_loops_stops.py"
RULES = "tests/unit/proxy/services/test_delay_rules.py"

MUTANTS = (
    Mutant(
        name="a cancel finds no occurrence but the first",
        file="broker/scheduled/recurring/puts.py",
        old='    keys = text if occurrence.made == 0 else b"%b %b" % (text, occurrence.first.id.encode())\n',
        new="    keys = text\n",
        caught_by=(
            f"{LOOPS}::test_cancel_by_any_id_of_a_loop_ends_it",
            f"{LOOPS}::test_cancel_among_missed_occurrences_ends_them",
        ),
        rows=("W58",),
    ),
    Mutant(
        name="a delay message that is refused is never answered",
        file="proxy/services/delay_service.py",
        old="                self._publishing.refuse(connection, call, refusal, 1, "
        "partial(_refused, said), slot=slot)\n",
        new="                self._publishing.tell_refused(refusal.code, said, connection.address)\n",
        caught_by=(f"{SERVED}::test_every_refusal_is_answered_with_its_code",),
        rows=("W75",),
        seconds_max=400,
    ),
    Mutant(
        name="the number of the inner topic may be negative",
        file="proxy/services/delay_rules.py",
        old="    return Occurrence(at_s, kind, expire_s, times, 0, interval, 0, uuid)\n",
        new="    return Occurrence(at_s, kind, expire_s, times, 0, interval, -1, uuid)\n",
        caught_by=(
            f"{RULES}::test_cancel_takes_every_id_that_an_add_gives",
            f"{SERVED}::test_cancels_are_answered_with_what_became_of_them",
        ),
        rows=("W76",),
    ),
    Mutant(
        name="any text is a uuid",
        file="proxy/services/delay_rules.py",
        old="    if not UUID.fullmatch(uuid):\n",
        new="    if uuid is None:\n",
        caught_by=(f"{RULES}::test_any_fields_give_an_id_that_can_be_cancelled_or_a_code",),
        rows=("W77", "W88"),
    ),
    Mutant(
        name="times of any size are taken",
        file="proxy/services/delay_rules.py",
        old="    if not 0 < times <= NUMBER_MAX:\n",
        new="    if not 0 < times:\n",
        caught_by=(f"{RULES}::test_loops",),
        rows=("W77",),
    ),
    Mutant(
        name="an expiry of any size is taken",
        file="proxy/services/delay_rules.py",
        old="    if not at_s < expire_s <= SECONDS_MAX:\n",
        new="    if not at_s < expire_s:\n",
        caught_by=(f"{RULES}::test_loops",),
        rows=("W77",),
    ),
    Mutant(
        name="a loop's body goes through text",
        file="broker/scheduled/recurring/puts.py",
        old='    return put._replace(properties=block, unique_key=b"")\n\n\ndef anew',
        new='    text_body = bytes(put.body).decode("utf-8", "replace").encode()\n'
        '    return put._replace(body=text_body, properties=block, unique_key=b"")\n\n\ndef anew',
        caught_by=(
            f"{SERVED}::test_missed_deliveries_of_a_loop_reach_a_consumer",
            f"{LOOPS}::test_body_and_properties_stay_over_every_occurrence",
        ),
        rows=("W78",),
    ),
    Mutant(
        name="all missed deliveries of a loop come in one piece",
        file="broker/scheduled/recurring/loops.py",
        old="        count = min(missed - skipped, UNFOLD_COUNT, max(1, self._fitting(put) - 1))\n",
        new="        count = missed - skipped\n",
        caught_by=(f"{UNFOLD}::test_missed_occurrences_come_in_bunches",),
        rows=("W86",),
    ),
    Mutant(
        name="any number of missed deliveries is made up for",
        file="broker/scheduled/recurring/loops.py",
        old="        skipped = max(0, missed - MISSED_MAX)\n",
        new="        skipped = 0\n",
        caught_by=(f"{UNFOLD}::test_too_many_missed_are_skipped_counted_and_part_of_times",),
        rows=("W86",),
    ),
    Mutant(
        name="a topic that takes nothing holds up what is due behind it",
        file="broker/scheduled/delivery.py",
        old="                    waiter.refuse(message, str(error))\n                    continue\n",
        new="                    waiter.wait([*run, *messages[place:]], error)\n                    return False\n",
        caught_by=(f"{LOOPS}::test_topic_that_is_gone_holds_up_nobody_and_loses_nothing",),
        rows=("W87",),
    ),
    Mutant(
        name="numbers of an id are of any size",
        file="broker/scheduled/recurring/occurrence.py",
        old="    if max(numbers) > NUMBER_MAX:\n        return None\n",
        new="",
        caught_by=("tests/unit/broker/scheduled/test_occurrence.py::test_other_texts_are_no_ids",),
        rows=("W88",),
    ),
    Mutant(
        name="without its files the service of delays begins now",
        file="broker/scheduled/timer/opening.py",
        old="    parts.entering.begin_at(queue, queue.min_offset)\n",
        new="    parts.entering.begin_at(queue, queue.max_offset)\n",
        caught_by=(f"{STOPS}::test_stop_at_every_change_loses_repeats_and_hurries_nothing",),
        rows=("W90",),
    ),
    Mutant(
        name="what was due in a downtime is never sent",
        file="broker/scheduled/recurring/loops.py",
        old="        missed = max(1, each.missed(now // 1000))\n",
        new="        each = each.later(max(0, each.missed(now // 1000) - 1)) or each\n        missed = 1\n",
        caught_by=(f"{LOOPS}::test_missed_in_a_downtime_come_in_order_and_the_rhythm_goes_on",),
        rows=("W90",),
    ),
    Mutant(
        name="after a crash what was delivered is delivered again",
        file="broker/scheduled/timer/opening.py",
        old="    yield from _apply_decisions(parts, 0, {})\n",
        new="",
        caught_by=(f"{STOPS}::test_stop_at_every_change_loses_repeats_and_hurries_nothing",),
        rows=("W90",),
    ),
    Mutant(
        name="a cancel is answered OK though it is too late",
        file="broker/scheduled/recurring/cancel.py",
        old="    return CancelOutcome.TOO_LATE if was_delivered else CancelOutcome.UNKNOWN\n",
        new="    return CancelOutcome.CANCELLED if was_delivered else CancelOutcome.UNKNOWN\n",
        caught_by=(f"{SERVED}::test_cancels_are_answered_with_what_became_of_them",),
        rows=("W91",),
    ),
    Mutant(
        name="a cancel is answered before it is stored",
        file="broker/scheduled/timer/cancel.py",
        old="    yield from awaited.steps()\n    if store",
        new="    if store",
        caught_by=(f"{LOOPS}::test_cancel_survives_a_kill",),
        rows=("W91",),
    ),
    Mutant(
        name="deliveries of a loop are spread over the queues",
        file="broker/scheduled/recurring/puts.py",
        old='    return put._replace(properties=b"KEYS\\x01%b\\x02%b" % (occurrence.id.encode(), rest))\n',
        new="    queue_id = occurrence.made % len(put.topic.queues)\n"
        '    return put._replace(queue_id=queue_id, properties=b"KEYS\\x01%b\\x02%b" % '
        "(occurrence.id.encode(), rest))\n",
        caught_by=(f"{SERVED}::test_missed_deliveries_of_a_loop_reach_a_consumer",),
        rows=("W91",),
    ),
    Mutant(
        name="a restart forgets how many occurrences wait",
        file="broker/scheduled/timer/opening.py",
        old="        table.pending = dict(saved.pending)\n",
        new="        table.pending = {}\n",
        caught_by=(f"{SERVED}::test_loops_outlive_a_restart",),
        rows=("W89",),
    ),
)
