"""Who may do what, and what is written down of it."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

MUTANTS = (
    Mutant(
        name="pulls need no right",
        file="proxy/services/access/guard.py",
        old=(
            "        if _rights(connection).may_consume(request.group):\n"
            "            return True\n"
            '        self.denials.note(connection, "pull"'
        ),
        new=('        if request.group:\n            return True\n        self.denials.note(connection, "pull"'),
        caught_by=(
            "tests/access/test_matrix.py::test_every_cell_is_as_the_rules_say_before_and_after_a_reload",
            "tests/access/test_sdks_without_credentials.py::test_denied_consumer_does_not_spin",
        ),
        rows=("W10",),
    ),
    Mutant(
        name="results need no right",
        file="proxy/services/access/guard.py",
        old=("            if each.group is not None and not may_consume(each.group):\n                break\n"),
        new=("            if each.group is None and not may_consume(each.group):\n                break\n"),
        caught_by=(
            "tests/access/test_denials.py::test_results_of_a_denied_pull_are_not_taken",
            "tests/access/test_denials.py::test_member_of_a_chain_without_the_right_is_dropped_and_the_others_count",
        ),
        rows=("W10",),
    ),
    Mutant(
        name="access: changes through the admin port need no right",
        file="proxy/operate/changes/desk.py",
        old="            self._gate.allow_change(request, asker, change, body)\n",
        new="",
        caught_by=(
            "tests/access/test_admin_gate.py::test_every_route_is_denied_without_its_right_and_answered_with_it",
        ),
        rows=("W10",),
    ),
    Mutant(
        name="access: a change that cannot be audited is made",
        file="proxy/operate/changes/desk.py",
        old=("        except AuditUnwritable as error:\n            raise ChangeRefused("),
        new=("        except AuditUnwritable as error:\n            return 0\n            raise ChangeRefused("),
        caught_by=(
            "tests/access/test_admin_audit.py::test_change_that_cannot_be_audited_is_refused_and_not_begun",
            "tests/access/test_admin_audit.py::test_line_that_could_not_be_synced_lets_no_change_through",
        ),
    ),
    Mutant(
        name="changes of what shapes delivery are not seen",
        file="conf/diff.py",
        old="        if renewed and subscription.enabled:\n",
        new="        if renewed and not subscription.enabled:\n",
        caught_by=("tests/unit/conf/test_conf_diff.py::test_what_shapes_delivery_starts_a_generation",),
        rows=("W46",),
    ),
    Mutant(
        name="timers of a group that was stopped run on",
        file="upstream/outcomes/outcomes.py",
        old=("        self.stopped = self.leaving.stopped = True\n        self.deadlines.clear()\n"),
        new="        self.stopped = self.leaving.stopped = True\n",
        caught_by=(
            "tests/integration/upstream/test_ddmq_faults_pipeline.py::test_stopped_group_leaves_nothing_behind",
        ),
        rows=("W48",),
    ),
)
