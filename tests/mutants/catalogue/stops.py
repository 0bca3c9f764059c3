"""Messages that are out of attempts and wait for an operator."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

STOPS = "tests/unit/upstream/outcomes/test_stops.py"
FILE = "upstream/outcomes/stops.py"

MUTANTS = (
    Mutant(
        name="a stop is forgotten by a restart",
        file=FILE,
        old="        self._note(job, FailureKind.STOPPED, stop)\n",
        new="",
        caught_by=(
            f"{STOPS}::test_stop_outlives_a_restart_and_a_reload",
            f"{STOPS}::test_stopped_queue_stands_still_after_a_restart",
        ),
    ),
    Mutant(
        name="a stopped message keeps its permit",
        file=FILE,
        old="        self._permits.release(1)\n        self._counters.stopped",
        new="        self._counters.stopped",
        caught_by=(
            f"{STOPS}::test_stopped_key_waits_and_others_go_on",
            f"{STOPS}::test_skip_and_dead_letter_end_a_stop",
            f"{STOPS}::test_late_success_ends_a_stop",
        ),
    ),
    Mutant(
        name="a retry by hand leaves the attempts as they were",
        file=FILE,
        old="        history.fails = history.errors = history.timeouts = history.stopped = 0\n",
        new="        history.stopped = 0\n",
        caught_by=(f"{STOPS}::test_retry_gives_all_attempts_again[False]",),
    ),
    Mutant(
        name="what a stopped queue has in the pull buffer is handed out",
        file="upstream/waiting/buffer.py",
        old=" or group_queue.stopped or group_queue.withheld:\n            return []",
        new=" or group_queue.withheld:\n            return []",
        caught_by=(f"{STOPS}::test_what_is_out_of_a_stopped_queue_comes_back_to_nobody",),
    ),
    Mutant(
        name="what was ready of a stopped queue runs",
        file="upstream/running/admission.py",
        old="            outcomes.stops.keep()\n",
        new="            pass\n",
        caught_by=(f"{STOPS}::test_stopped_queue_stands_still_and_other_queues_go_on[KEY]",),
    ),
    Mutant(
        name="a stopped queue holds the permits of what was in the pull buffer",
        file=FILE,
        old="            self._permits.release(len(jobs))\n",
        new="",
        caught_by=(f"{STOPS}::test_what_is_out_of_a_stopped_queue_comes_back_to_nobody",),
    ),
)
