"""What a person on call is told: findings, how long they last, and why a message failed."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

ATTENTION = "tests/acceptance/test_attention.py"
LETTERS = "tests/acceptance/test_dlq.py::test_dead_letters_are_listed_shown_and_counted"
TROUBLES = "tests/simulation/test_troubles.py"
STAGED = f"{TROUBLES}::test_trouble_is_told_of_within_seconds_and_no_longer_than_it_lasts"
CROSSING = (
    "tests/unit/upstream/delivery/test_crossing.py::test_reason_of_a_client_stands_in_the_dead_letter_in_one_line"
)
CLIENT = "tests/unit/pyddmq/test_client_consumer.py"
SCAN = "tests/unit/proxy/wire/test_wire_scan.py"

MUTANTS = (
    Mutant(
        name="a message that fails again and again is told of without its reason",
        file="proxy/operate/attention/of_groups.py",
        old='        why = f", the last time with: {short(each.reason)}" if each.reason else ""\n',
        new='        why = ""\n',
        caught_by=(f"{ATTENTION}::test_poison_key_is_named_by_page_commands_readiness_and_gauge",),
    ),
    Mutant(
        name="a message that fails for ever is ordinary work",
        file="upstream/delivery/stats.py",
        old="                if job.history is not None and job.history.attempts >= FAILING_ATTEMPTS:\n",
        new="                if job.history is not None and job.history.errors >= FAILING_ATTEMPTS:\n",
        caught_by=(
            f"{ATTENTION}::test_poison_key_is_named_by_page_commands_readiness_and_gauge",
            f"{STAGED}[poison_key]",
        ),
    ),
    Mutant(
        name="a configuration that is gone shows in the log alone",
        file="proxy/operate/attention/of_node.py",
        old="    if configuration.missing_ms:\n",
        new="    if configuration.missing_ms < 0:\n",
        caught_by=(
            f"{ATTENTION}::test_refused_and_vanished_configuration_show_until_they_are_mended",
            f"{STAGED}[vanished_configuration]",
        ),
    ),
    Mutant(
        name="a refused configuration shows after a good one was taken",
        file="proxy/node/reload.py",
        old="        self.configuration = replace(self.configuration, refused_ms=0, problems=())\n",
        new="",
        caught_by=(
            f"{ATTENTION}::test_refused_and_vanished_configuration_show_until_they_are_mended",
            f"{STAGED}[refused_reload]",
        ),
    ),
    Mutant(
        name="the log does not say where the data is",
        file="proxy/process/serve.py",
        old="        data=data,\n        producer=producer,\n",
        new="        producer=producer,\n",
        caught_by=(f"{ATTENTION}::test_log_says_once_what_is_ready_and_where",),
    ),
    Mutant(
        name="a storm of retries is one of timeouts",
        file="proxy/operate/attention/of_groups.py",
        old='    failed = timeouts + rise("pyddmq_failed_attempts_total") + rise("pyddmq_error_attempts_total")\n',
        new="    failed = timeouts\n",
        caught_by=(f"{STAGED}[failing_consumers]",),
    ),
    Mutant(
        name="timeouts are told of when there are more than enough",
        file="proxy/operate/attention/of_groups.py",
        old="    if timeouts >= TIMEOUTS:\n",
        new="    if timeouts > TIMEOUTS:\n",
        caught_by=(f"{STAGED}[late_answers]",),
    ),
    Mutant(
        name="what rose within the last minute is what rose since the start",
        file="proxy/node/vitals.py",
        old="            while self._rises[0][0] <= now - WINDOW_SECONDS:\n                self._rises.popleft()\n",
        new="",
        caught_by=(f"{STAGED}[refused_pulls]",),
    ),
    Mutant(
        name="a clock that is set back is not behind",
        file="proxy/node/vitals.py",
        old="        self._latest_ms = max(self._latest_ms, wall_ms)\n",
        new="        self._latest_ms = wall_ms\n",
        caught_by=("tests/unit/broker/runtime/test_vitals.py::test_clock_steps_are_noticed_and_a_slow_drift_is_none",),
    ),
    Mutant(
        name="store times that are ahead of the clock are no finding after a restart",
        file="proxy/operate/attention/troubles.py",
        old="max(common.clock_behind_seconds, store.arrivals.ahead_seconds(store.store_ms))",
        new="common.clock_behind_seconds",
        caught_by=(f"{STAGED}[clock_back]",),
    ),
    Mutant(
        name="a slow sync is told of after its end and for ever",
        file="broker/runtime/disks/timed_syncs.py",
        old="*(took for at, took in self._longest if now - at < WINDOW_SECONDS)",
        new="*(took for _, took in self._longest)",
        caught_by=(f"{STAGED}[slow_disk]",),
    ),
    Mutant(
        name="a client that is silent with a key is named twice, one without a key never",
        file="proxy/operate/attention/of_groups.py",
        old="(each.topic, each.holder) not in named:\n",
        new="(each.topic, each.holder) in named:\n",
        caught_by=(f"{STAGED}[silent_client]",),
    ),
    Mutant(
        name="a kind of findings has no trouble that brings it about",
        file="proxy/operate/attention/kinds.py",
        old="KINDS: dict[str, Kind] = {\n",
        new='KINDS: dict[str, Kind] = {\n    "unseen": Kind("nobody has seen it", "Look again."),\n',
        caught_by=(
            f"{TROUBLES}::test_every_kind_of_finding_is_staged",
            f"{TROUBLES}::test_page_lists_every_finding_with_what_to_do",
        ),
    ),
    Mutant(
        name="each failure begins the time of failing anew",
        file="upstream/history.py",
        old="    history.reason = reason\n    return history\n",
        new="    history.reason, history.since = reason, now\n    return history\n",
        caught_by=(f"{TROUBLES}::test_since_is_the_first_failure_through_all_attempts",),
    ),
    Mutant(
        name="failures before the restart began with it",
        file="upstream/embedded/source.py",
        old="        history = job.history = History(self._clock.monotonic(), earlier=True)\n",
        new="        history = job.history = History(self._clock.monotonic())\n",
        caught_by=(f"{TROUBLES}::test_time_of_a_failure_before_the_restart_is_told_as_at_least",),
    ),
    Mutant(
        name="a node that starts has no finding",
        file="proxy/operate/attention/of_node.py",
        old='    elif node.state != "ready":\n',
        new='    elif node.state not in ("ready", "starting", "recovering"):\n',
        caught_by=(f"{TROUBLES}::test_node_that_starts_says_so_and_has_no_other_finding",),
    ),
    Mutant(
        name="what a client says of its failure goes no further than the wire",
        file="proxy/services/consumer_service.py",
        old="connection, result.deliveries, result.reasons\n",
        new="connection, result.deliveries\n",
        caught_by=(LETTERS,),
    ),
    Mutant(
        name="a dead letter does not say why its client failed",
        file="upstream/delivery/results.py",
        old='        said = "" if self.reasons is None else clean_reason(self.reasons.get(offset, b""))\n',
        new='        said = ""\n',
        caught_by=(CROSSING, LETTERS),
    ),
    Mutant(
        name="a reason keeps its line ends",
        file="upstream/retry/reasons.py",
        old='    text = " ".join("".join(char if char.isprintable() else " " for char in text).split())\n',
        new="",
        caught_by=(CROSSING,),
    ),
    Mutant(
        name="a reason that is no text breaks its call",
        file="upstream/retry/reasons.py",
        old='    text = said.decode("utf-8", "replace")\n',
        new='    text = said.decode("utf-8")\n',
        caught_by=(CROSSING,),
    ),
    Mutant(
        name="the client tells of a failure alone",
        file="pyddmq/client/results.py",
        old="                result.reasons[offset] = reason\n",
        new="                pass\n",
        caught_by=(
            f"{CLIENT}::test_failed_handler_tells_why",
            f"{CLIENT}::test_reason_of_a_failure_may_be_given",
        ),
    ),
    Mutant(
        name="what an exception says can break the call that tells of it",
        file="pyddmq/client/reasons.py",
        old='    return reason[:REASON_CHARS_MAX].encode("utf-8", "replace").decode()\n',
        new="    return reason[:REASON_CHARS_MAX]\n",
        caught_by=(f"{CLIENT}::test_failed_handler_tells_why",),
    ),
    Mutant(
        name="a long reason is kept whole",
        file="proxy/wire/scanning/scan_deliveries.py",
        old="        found[offset] = raw[:REASON_BYTES_MAX]\n",
        new="        found[offset] = raw\n",
        caught_by=(f"{SCAN}::test_scan_keeps_the_beginning_of_a_long_reason_and_any_bytes",),
    ),
    Mutant(
        name="a call may bring numbers of deliveries without a bound",
        file="proxy/wire/steps.py",
        old="        self.numbers = OFFSETS_MAX\n",
        new="        self.numbers = 2 * OFFSETS_MAX\n",
        caught_by=(f"{SCAN}::test_scan_bounds_the_numbers_and_reasons_of_a_call",),
    ),
)
