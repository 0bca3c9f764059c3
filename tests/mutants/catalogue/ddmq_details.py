"""What client libraries and configurations of DDMQ go by: empty statistics, marks, refusals, fields, second tries."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

DETAILS = "tests/integration/proxy/services/test_ddmq_details.py"
CONF = "tests/unit/conf/test_conf_ddmq.py"
LIMITED = "tests/integration/proxy/services/test_limited_sends.py"

MUTANTS = (
    Mutant(
        name="statistics of an unknown group break the call",
        file="proxy/services/consumer_service.py",
        old="        group = self._groups.get(request.group)\n        rows = [] if group is None else [(request",
        new="        group = self._groups[request.group]\n        rows = [] if group is None else [(request",
        caught_by=(f"{DETAILS}::test_statistics_of_an_unknown_group_or_topic_are_empty",),
    ),
    Mutant(
        name="statistics of one topic are those of all",
        file="upstream/delivery/group_figures.py",
        old="        return [each for each in found if topic is None or each.topic == topic]\n",
        new="        return found\n",
        caught_by=(f"{DETAILS}::test_statistics_of_an_unknown_group_or_topic_are_empty",),
    ),
    Mutant(
        name="a disabled topic is told as one that there is not",
        file="proxy/services/message_checks.py",
        old="        elif self._disabled(text):\n",
        new="        elif self._disabled(text) and topic is None:\n",
        caught_by=(f"{DETAILS}::test_disabled_topic_is_told_as_such",),
    ),
    Mutant(
        name="refused fetches leave no line",
        file="proxy/services/fetch_service.py",
        old='            "fetch_refused",\n',
        new='            "pull_refused",\n',
        caught_by=(f"{DETAILS}::test_refused_low_level_calls_show",),
    ),
    Mutant(
        name="refused fetches are not counted",
        file="proxy/services/fetch_service.py",
        old="        self._metrics.counter(FETCHES_REFUSED, refused.code.name.lower()).add()\n",
        new="",
        caught_by=(f"{DETAILS}::test_refused_low_level_calls_show",),
    ),
    Mutant(
        name="refused acks are not counted",
        file="proxy/services/fetch_service.py",
        old="            self._metrics.counter(ACKS_REFUSED, reason).add(sum(map(len, offsets.values())))\n",
        new="",
        caught_by=(f"{DETAILS}::test_refused_low_level_calls_show",),
    ),
    Mutant(
        name="a delivered delay message is like any other",
        file="proxy/services/delay_service.py",
        old='{**message.get("properties", {}), MARK: "true"}',
        new='{**message.get("properties", {})}',
        caught_by=(f"{DETAILS}::test_delivered_delay_message_is_marked",),
    ),
    Mutant(
        name="a sender says whether its message was delayed",
        file="proxy/services/delay_service.py",
        old='{**message.get("properties", {}), MARK: "true"}',
        new='{MARK: "true", **message.get("properties", {})}',
        caught_by=(f"{DETAILS}::test_delivered_delay_message_is_marked",),
    ),
    Mutant(
        name="a field of DDMQ has no place",
        file="conf/foreign.py",
        old='        "retryDelays": _warn("DDMQ never used it either; take it out"),\n',
        new="",
        caught_by=(f"{CONF}::test_field_of_ddmq_has_its_place",),
    ),
    Mutant(
        name="a field of DDMQ that changes what is delivered is accepted",
        file="conf/foreign.py",
        old="        return not self.harmless and value not in ",
        new="        return self.harmless and value not in ",
        caught_by=(f"{CONF}::test_field_of_ddmq_has_its_place",),
    ),
    Mutant(
        name="a section of DDMQ's file is an unknown word",
        file="conf/loader.py",
        old="                self._problem((key,), TOP_LEVEL.get(key, known))\n",
        new="                self._problem((key,), known)\n",
        caught_by=(f"{CONF}::test_top_of_a_file_of_ddmq_is_told_where_it_belongs",),
    ),
    Mutant(
        name="a section of DDMQ's file is missing among those that are told where they belong",
        file="conf/foreign.py",
        old='    "groupConfigs": "is DDMQ\'s name; write `groups:`",\n',
        new="",
        caught_by=(f"{CONF}::test_top_of_a_file_of_ddmq_is_told_where_it_belongs",),
    ),
    Mutant(
        name="a send above its rate is tried until it finds a token",
        file="proxy/services/producer_service.py",
        old="            retry = partial(self._send, connection, call, message, timeout_ms, again=False)\n",
        new="            retry = partial(self._send, connection, call, message, timeout_ms)\n",
        caught_by=(f"{LIMITED}::test_second_try_is_the_last",),
    ),
    Mutant(
        name="what a send that waited held stays in the account",
        file="proxy/services/limited_sends.py",
        old="        connection.hold(-len(call.frame))\n        left =",
        new="        left =",
        caught_by=(f"{LIMITED}::test_second_try_is_the_last",),
    ),
    Mutant(
        name="a send that waits is stored although its client has gone",
        file="proxy/services/limited_sends.py",
        old="        if not connection.closed:\n            again(slot)\n",
        new="        again(slot)\n",
        caught_by=(f"{LIMITED}::test_client_that_has_gone_stores_nothing_later",),
    ),
    Mutant(
        name="sends without a bound wait for their second try",
        file="proxy/services/limited_sends.py",
        old="        if wait_ms <= 0 or self._count >= self._waiting_max() or self._budget",
        new="        if wait_ms <= 0 or self._budget",
        caught_by=(f"{LIMITED}::test_as_many_wait_as_are_allowed",),
    ),
    Mutant(
        name="a batch above its rate is refused at once",
        file="proxy/services/producer_service.py",
        old="            if not (again and self._limited.wait(refusal, connection, call, timeout_ms=None, slot=slot,"
        " again=retry)):\n",
        new="            if retry is not None:\n",
        caught_by=(f"{LIMITED}::test_other_sends_are_tried_once_more_too",),
    ),
    Mutant(
        name="a delayed message above its rate is refused at once",
        file="proxy/services/delay_service.py",
        old="            retry = partial(self._take, connection, call, message, timeout_ms, again=False)\n",
        new="            retry, again = partial(self._take, connection, call, message, timeout_ms), False\n",
        caught_by=(f"{LIMITED}::test_other_sends_are_tried_once_more_too",),
    ),
)
