"""A message that is sent again is stored once, in the order of its producer."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

MUTANTS = (
    Mutant(
        name="any name in a file is a topic's",
        file="broker/runtime/names.py",
        old='_STORED = re.compile(rb"[%|a-zA-Z0-9_-]{1,255}")',
        new='_STORED = re.compile(rb".+", re.DOTALL)',
        caught_by=(
            "tests/integration/broker/store/test_hostile_names.py::test_name_that_no_topic_can_have_is_refused",
            "tests/integration/broker/store/test_hostile_names.py::test_crafted_backup_is_refused_and_changes_nothing",
        ),
    ),
    Mutant(
        name="what answers nothing is kept for ever",
        file="upstream/running/running.py",
        old=("    else:\n        outcomes.error(job, no_answer(answer))\n"),
        new="",
        caught_by=(
            "tests/unit/upstream/running/test_calling.py::test_failures_of_calls_end_in_the_dead_letters_with_type_and_text",
        ),
    ),
    Mutant(
        name="refused fetches leave no line",
        file="proxy/services/fetch_service.py",
        old='            "fetch_refused",\n',
        new='            "pull_refused",\n',
        caught_by=("tests/integration/proxy/services/test_ddmq_details.py::test_refused_low_level_calls_show",),
    ),
    Mutant(
        name="refused acks are not counted",
        file="proxy/services/fetch_service.py",
        old="            self._metrics.counter(ACKS_REFUSED, reason).add(sum(map(len, offsets.values())))\n",
        new="",
        caught_by=("tests/integration/proxy/services/test_ddmq_details.py::test_refused_low_level_calls_show",),
    ),
)
