"""Calls of actions that wait: W37, W38, and what must hold of them besides."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

CALLING = "tests/unit/upstream/running/test_calling.py"
MODEL = "tests/unit/upstream/running/test_calling_model.py"
POOL = "tests/unit/upstream/calls/test_pool.py"
CALLER = "tests/unit/upstream/calls/test_caller.py"
FAILING = "tests/unit/actions/test_failing.py"
REGISTRY = "tests/unit/actions/test_registry.py"

MUTANTS = (
    Mutant(
        name="a call that is cancelled at its limit is over before it has cleaned up",
        file="upstream/calls/awaiting.py",
        old="        if not call.begun:\n",
        new="        if call in self.out:\n",
        caught_by=(f"{CALLING}::test_async_call_is_cancelled_and_awaited_at_its_time_limit",),
        rows=("W37",),
    ),
    Mutant(
        name="what an async action raises is nobody's",
        file="upstream/calls/awaiting.py",
        old="        except BaseException as error:\n            answer = _raised(call, error)\n",
        new="        except Exception:\n            answer = Status.ASYNCHRONIZED\n",
        caught_by=(f"{CALLING}::test_failures_of_calls_end_in_the_dead_letters_with_type_and_text",),
        rows=("W38",),
    ),
    Mutant(
        name="a new generation runs what a call of the old one still has",
        file="upstream/job.py",
        old="        self.apart.update(self.calls)\n",
        new="",
        caught_by=(
            f"{CALLING}::test_call_left_behind_by_its_generation_is_not_overlapped",
            f"{MODEL}::test_every_message_leaves_its_pipeline_once_and_in_order",
        ),
    ),
    Mutant(
        name="of the answers of one turn the first alone is told",
        file="upstream/calls/caller.py",
        old="        for call, of_call in ended:\n",
        new="        for call, of_call in ended[:1]:\n",
        caught_by=(f"{MODEL}::test_every_message_leaves_its_pipeline_once_and_in_order",),
    ),
    Mutant(
        name="what answers nothing is kept for ever",
        file="upstream/running/running.py",
        old="    else:\n        outcomes.error(job, no_answer(answer))\n",
        new="",
        caught_by=(f"{CALLING}::test_failures_of_calls_end_in_the_dead_letters_with_type_and_text",),
    ),
    Mutant(
        name="threads go to who asks first",
        file="upstream/calls/pool.py",
        old="        common = self.calls_max - share * len(self._lines)\n",
        new="        common = self.calls_max\n",
        caught_by=(
            f"{POOL}::test_hanging_lines_leave_each_other_their_shares",
            f"{CALLING}::test_pool_shares_threads_so_that_a_hanging_topic_starves_no_other",
        ),
    ),
    Mutant(
        name="the answer of a call that was answered by hand decides the next attempt",
        file="upstream/calls/caller.py",
        old="                if job.group_queue.calls.get(job.offset) is call:\n"
        "                    del job.group_queue.calls",
        new="                if job.group_queue.calls.get(job.offset):\n                    del job.group_queue.calls",
        caught_by=(f"{CALLER}::test_answer_by_hand_counts_and_what_its_call_answers_later_does_not",),
    ),
    Mutant(
        name="a node that ends does not wait for what it cancelled",
        file="upstream/calls/node_calls.py",
        old="        while (self.ending or self._beside) and not hurry():\n",
        new="        while self._beside and not hurry():\n",
        caught_by=(f"{CALLER}::test_stop_waits_for_what_it_cancelled_and_for_close",),
    ),
    Mutant(
        name="a single action that was waited for is run again when it resumes",
        file="upstream/running/running.py",
        old="        step = max(job.step, 0) + 1\n",
        new="        step = job.step + 1\n",
        caught_by=(f"{FAILING}::test_single_action_behind_the_gate_that_was_waited_for_is_the_last_one",),
    ),
    Mutant(
        name="to put a message off counts as an attempt",
        file="upstream/outcomes/outcomes.py",
        old="        if isinstance(error, RetryLater):\n",
        new="        if type(error) is None:\n",
        caught_by=(
            f"{FAILING}::test_retry_later_waits_in_its_place_uncounted",
            f"{CALLING}::test_retry_later_keeps_the_place_and_counts_nothing",
        ),
    ),
    Mutant(
        name="every built-in action is imported with the registry",
        file="actions/registry.py",
        old="        self._points = {point.name: point for point in entry_points(group=ENTRY_POINT_GROUP)}\n",
        new="        self._points = {point.name: point for point in entry_points(group=ENTRY_POINT_GROUP)}\n"
        "        for each in self._places:\n            self.find(each)\n",
        caught_by=(f"{REGISTRY}::test_a_node_imports_only_the_actions_that_its_configuration_names",),
    ),
)
