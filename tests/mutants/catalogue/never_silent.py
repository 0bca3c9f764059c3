"""Nothing is dropped without a count, a reason and a dead letter."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

MUTANTS = (
    Mutant(
        name="an error of a filter or a script counts as filtered",
        file="actions/script/outcome.py",
        old=('    if on_error == "fail":\n        return error\n'),
        new=('    if on_error == "fail":\n        action.context.count("filtered")\n        return Status.FINISH\n'),
        caught_by=(
            "tests/unit/actions/test_filter.py::test_error_is_counted_and_ends_as_the_group_chose",
            "tests/unit/actions/test_python_action.py::test_error_of_a_script_is_never_taken_for_filtered",
        ),
        rows=("W16",),
    ),
    Mutant(
        name="the log does not say where the data is",
        file="proxy/process/serve.py",
        old=("        data=data,\n        producer=producer,\n"),
        new="        producer=producer,\n",
        caught_by=("tests/acceptance/test_attention.py::test_log_says_once_what_is_ready_and_where",),
    ),
    Mutant(
        name="the blob that a commit names is written over",
        file="upstream/kafka/blobs.py",
        old="{int(owner.named.endswith('-0'))}",
        new="0",
        caught_by=("tests/unit/upstream/kafka/test_blobs.py::test_slot_that_a_commit_names_is_not_the_next_ones",),
    ),
    Mutant(
        name="a member that gets its partitions back knows what is committed and nothing else",
        file="upstream/kafka/remembered.py",
        old="        return known.ranges\n",
        new="        return ()\n",
        caught_by=(
            "tests/unit/upstream/kafka/test_answered_is_kept.py::test_node_that_gets_its_partitions_back_has_nothing_repeated",
        ),
    ),
    Mutant(
        name="a round reads as many records of a cluster as there are rows",
        file="proxy/recording/cluster_samples.py",
        old="        left = missing[:READS_MAX]\n",
        new="        left = missing\n",
        caught_by=(
            "tests/unit/proxy/recording/test_cluster_samples.py::test_reads_are_bounded_and_everyone_has_a_turn",
        ),
    ),
    Mutant(
        name="a reset lets go the keys of finished messages that clients have",
        file="upstream/job.py",
        old="        return [offset for offset in self.adopted if not self.tracker.is_finished(offset)]\n",
        new="        return list(self.adopted)\n",
        caught_by=(
            "tests/unit/upstream/delivery/test_positions.py::test_held_key_waits_on_in_the_generation_after_a_reset",
        ),
    ),
    Mutant(
        name="a header may be a fact of the broker's own",
        file="upstream/kafka/headers.py",
        old="    if counts[name] > 1 or _reserved(name):\n",
        new="    if counts[name] > 1:\n",
        caught_by=("tests/unit/upstream/kafka/test_headers.py::test_property_block_holds_what_was_decoded",),
    ),
)
