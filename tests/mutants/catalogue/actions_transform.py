"""Transforms, filters and scripts: W16, W21 to W23, and the bodies that pull clients get."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

FILTER = "tests/unit/actions/test_filter.py"
PYTHON = "tests/unit/actions/test_python_action.py"
EXACT = "tests/unit/actions/test_exact.py"
TRANSFORMS = "tests/unit/actions/test_transforms.py"
CEL = "tests/unit/actions/test_cel.py"
BODIES = "tests/unit/upstream/delivery/test_made_bodies.py"
WIRE = "tests/integration/proxy/services/test_ddmq_faults_wire.py"

MUTANTS = (
    Mutant(
        name="an error of a filter or a script counts as filtered",
        file="actions/script/outcome.py",
        old='    if on_error == "fail":\n        return error\n',
        new='    if on_error == "fail":\n        action.context.count("filtered")\n        return Status.FINISH\n',
        caught_by=(
            f"{FILTER}::test_error_is_counted_and_ends_as_the_group_chose",
            f"{PYTHON}::test_error_of_a_script_is_never_taken_for_filtered",
        ),
        rows=("W16",),
    ),
    Mutant(
        name="a function that returns nothing filters",
        file="actions/script/python_action.py",
        old="    if answer is False:\n",
        new="    if not answer:\n",
        caught_by=(f"{PYTHON}::test_error_of_a_script_is_never_taken_for_filtered",),
        rows=("W16",),
    ),
    Mutant(
        name="a missing field of a filter is false",
        file="actions/script/cel.py",
        old='        if result.type().name() == "ERROR":\n',
        new='        if result.type().name() == "ERROR":\n            return False\n        if not result:\n',
        caught_by=(
            f"{FILTER}::test_error_is_counted_and_ends_as_the_group_chose",
            f"{CEL}::test_what_cannot_be_decided_is_an_error",
        ),
        rows=("W16",),
    ),
    Mutant(
        name="numbers of a body lose their text",
        file="actions/transform/exact.py",
        old="    return plain if repr(plain) == text else JsonNumber(text)\n",
        new="    return plain\n",
        caught_by=(
            f"{EXACT}::test_written_as_it_was_read",
            f"{WIRE}::test_transformed_body_is_handed_out_where_asked",
        ),
        rows=("W21",),
    ),
    Mutant(
        name="a binary body is decoded with losses",
        file="actions/transform/form_params.py",
        old="            yield PARAMS, data.decode()\n",
        new='            yield PARAMS, data.decode("utf-8", "replace")\n',
        caught_by=(f"{TRANSFORMS}::test_body_that_is_no_text_is_refused_or_sent_as_base64",),
        rows=("W21",),
    ),
    Mutant(
        name="context is left out where the body is raw bytes",
        file="actions/transform/form_params.py",
        old="        form = [*self.fields(job), *self._append(job)]\n",
        new="        form = [*self.fields(job), *([] if isinstance(job.data, bytes) else self._append(job))]\n",
        caught_by=(f"{TRANSFORMS}::test_context_goes_with_every_body",),
        rows=("W22",),
    ),
    Mutant(
        name="an absent field fails the message whatever is configured",
        file="actions/transform/missing.py",
        old='    if on_missing == "fail":\n',
        new="    if on_missing:\n",
        caught_by=(f"{TRANSFORMS}::test_missing_field_is_handled_as_configured",),
        rows=("W23",),
    ),
    Mutant(
        name="a root that points nowhere is an error without a path",
        file="actions/transform/transit.py",
        old="            if not isinstance(root, dict):\n",
        new="            if root is None:\n",
        caught_by=(f"{TRANSFORMS}::test_transit_whose_root_is_missing_says_so",),
        rows=("W23",),
    ),
    Mutant(
        name="setting a field changes what a later one reads",
        file="actions/transform/transit.py",
        old="            below = below.copy()\n",
        new="            pass\n",
        caught_by=(f"{TRANSFORMS}::test_transit_begins_with_the_part_that_the_dollar_names",),
    ),
    Mutant(
        name="a costly message is evaluated all the same",
        file="actions/script/cel.py",
        old="        if cost > COST_MAX:\n",
        new="        if cost < 0:\n",
        caught_by=(f"{CEL}::test_costly_message_is_an_error_before_it_costs",),
        seconds_max=20,
    ),
    Mutant(
        name="a made body is forgotten when its message was failed",
        file="upstream/job.py",
        old="        self._outgoing = None\n        self._data = None\n\n",
        new="        self._outgoing = None\n        self._data = None\n        self.made = None\n\n",
        caught_by=(f"{BODIES}::test_body_of_a_redelivery_a_retry_and_a_restart_is_the_same",),
    ),
    Mutant(
        name="made bodies count for nothing",
        file="upstream/delivery/made_bodies.py",
        old="        self._budget.add(size)\n",
        new="        self._budget.add(0)\n",
        caught_by=(f"{BODIES}::test_end_of_a_subscription_takes_its_bodies_off",),
    ),
    Mutant(
        name="made bodies have no share that stops admission",
        file="upstream/delivery/subscription.py",
        old="                if self.made_bodies is not None and not self.made_bodies.has_room:\n",
        new="                if self.made_bodies is not None and not self.made_bodies:\n",
        caught_by=(f"{BODIES}::test_bodies_count_against_the_memory_ceiling_and_stop_admission",),
    ),
)
