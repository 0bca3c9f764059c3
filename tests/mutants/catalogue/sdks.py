"""What DDMQ's libraries need of answers: results taken or left unanswered, a message's faults told as its own."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

AT_START = "tests/integration/proxy/services/test_results_at_start.py"
DETAILS = "tests/integration/proxy/services/test_ddmq_details.py"
LIBRARIES = "tests/simulation/test_sdks.py::test_kills_cost_libraries_nothing_that_was_answered"
LIMITED = "tests/integration/proxy/services/test_limited_sends.py"
NODE_LISTS = "tests/simulation/test_sdk_node_lists.py"
NO_UTF8 = "tests/integration/proxy/services/test_texts_no_utf8.py"

MUTANTS = (
    Mutant(
        name="a half message above a rate is refused at once",
        file="proxy/services/transaction_service.py",
        old="                again and self._limited.wait(",
        new="                not again and self._limited.wait(",
        caught_by=(f"{LIMITED}::test_other_sends_are_tried_once_more_too",),
    ),
    Mutant(
        name="a half message overtakes a send of its connection that waits",
        file="proxy/services/transaction_service.py",
        old="        if connection in self._limited.waiting:\n",
        new="        if self._limited.waiting is None:\n",
        caught_by=(f"{LIMITED}::test_half_behind_a_send_that_waits_keeps_its_place",),
    ),
    Mutant(
        name="a topic that is not there has a code that takes the node out of libraries' lists",
        file="proxy/services/message_checks.py",
        old="            return Refusal(ResultCode.FAIL_TOPIC_NOT_EXIST, why)\n",
        new="            return Refusal(ResultCode.FAIL_UNKNOWN, why)\n",
        caught_by=(f"{NODE_LISTS}::test_codes_that_keep_the_node_stop_nothing",),
    ),
    Mutant(
        name="results that come while the node starts are answered with an exception",
        file="proxy/services/starting_service.py",
        old="        if carries_results(request.results):\n",
        new="        if request.results is None:\n",
        caught_by=(f"{AT_START}::test_results_wait_for_the_start_and_count_first", LIBRARIES),
    ),
    Mutant(
        name="results that cannot be recorded are answered with an exception",
        file="proxy/services/consumer_service.py",
        old="            if refused is not None and carries_results(request.results):\n",
        new="            if refused is not None and not request.results:\n",
        caught_by=(f"{AT_START}::test_results_that_cannot_be_recorded_get_no_answer",),
    ),
    Mutant(
        name="what is held for a start is not bounded",
        file="proxy/services/results/held_calls.py",
        old="        return len(self._calls) >= CALLS_MAX or self._bytes + size > BYTES_MAX\n",
        new="        return False\n",
        caught_by=(f"{AT_START}::test_beyond_the_bound_connections_end_unanswered",),
    ),
    Mutant(
        name="a text that is no UTF-8 is a TApplicationException",
        file="proxy/wire/texts.py",
        old="        raise TextError(_NAMES[field_id]) from None\n",
        new="        raise TextError.__mro__[1](_NAMES[field_id]) from None\n",
        caught_by=(f"{NO_UTF8}::test_other_texts_are_refused_by_name", LIBRARIES),
    ),
    Mutant(
        name="a body in the text field has to be UTF-8",
        file="proxy/wire/scanning/scan_send.py",
        old="            if not raw.isascii() and last != VALUE:\n",
        new="            if not raw.isascii():\n",
        caught_by=(f"{NO_UTF8}::test_body_in_the_text_field_is_stored_byte_for_byte",),
    ),
    Mutant(
        name="a topic is looked for before its message is judged",
        file="proxy/services/message_checks.py",
        old="            if not content or len(content) > body_bytes_max:\n",
        new="            if topic not in known_ports:\n"
        "                self._new_port(topic)\n"
        "            if not content or len(content) > body_bytes_max:\n",
        caught_by=(
            f"{DETAILS}::test_message_is_checked_in_the_order_of_ddmq",
            f"{DETAILS}::test_delay_message_is_checked_in_the_order_of_ddmq",
        ),
    ),
    Mutant(
        name="a send above a rate is refused at once",
        file="proxy/services/limited_sends.py",
        old="        return refusal.retry_ms\n",
        new="        return 0\n",
        caught_by=(f"{LIMITED}::test_send_above_its_rate_is_tried_once_more",),
    ),
    Mutant(
        name="what a connection sends next overtakes a send that waits",
        file="proxy/services/producer_service.py",
        old="            self._limited.follow(connection, call, partial(self._send, connection,",
        new="            (lambda *given: given[-1](None))(connection, call, partial(self._send, connection,",
        caught_by=(f"{LIMITED}::test_messages_behind_one_that_waits_keep_their_order",),
    ),
    Mutant(
        name="the node's rate is spent by messages that their topic's refuses",
        file="proxy/services/message_checks.py",
        old="        limit, node_limit = port.limit, port.node_limit\n",
        new="        limit, node_limit = port.limit, port.node_limit\n"
        "        if node_limit is not None:\n"
        "            node_limit.take(1)\n",
        caught_by=(f"{LIMITED}::test_rate_of_the_node_is_over_all_topics",),
    ),
)
