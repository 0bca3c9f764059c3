"""A store that RocketMQ opens, and sinks that others read."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

MUTANTS = (
    Mutant(
        name="a record whose sync failed is taken for durable",
        file="upstream/outcomes/apart.py",
        old=("            self._permits.release(1)\n        if job.group_queue.tracker.is_finished(job.offset):\n"),
        new=("            self._permits.release(1)\n        if job.group_queue.tracker.finish(job.offset) or True:\n"),
        caught_by=(
            "tests/unit/upstream/outcomes/test_undecided.py::test_message_whose_retry_could_not_be_synced_waits_for_the_restart",
            "tests/unit/upstream/outcomes/test_undecided.py::test_message_whose_dead_letter_could_not_be_synced_waits_for_the_restart",
        ),
    ),
    Mutant(
        name="a clock that was set back holds up what waited before",
        file="broker/scheduled/delay/level_queue.py",
        old="                return min(due, latest)\n",
        new="                return due\n",
        caught_by=(
            "tests/unit/broker/scheduled/test_delay_level_queue.py::test_due_times_never_fall_and_are_those_of_what_came_later",
            "tests/integration/broker/scheduled/test_delays.py::test_back_step_neither_repeats_nor_delays_by_the_step",
        ),
    ),
    Mutant(
        name="pages are shown under any name",
        file="proxy/admin/routes.py",
        old="        if is_open or (request.method in _CHANGING",
        new="        if is_open or request.path != '/' or (request.method in _CHANGING",
        caught_by=("tests/hostile/test_admin_port.py::test_pages_are_not_shown_under_a_foreign_name",),
    ),
    Mutant(
        name="a token is compared as text",
        file="proxy/operate/changes/desk.py",
        old=('        if not hmac.compare_digest(given.encode("utf-8", "surrogateescape"), token.encode()):\n'),
        new="        if not hmac.compare_digest(given, token):\n",
        caught_by=("tests/hostile/test_admin_port.py::test_authorization_of_any_bytes_is_refused_and_no_fault",),
    ),
)
