"""Sinks: W59 to W61, and what a repeat does."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

FILES = "tests/unit/actions/sinks/test_files.py"
HBASE = "tests/unit/actions/sinks/test_hbase.py"
REDIS = "tests/unit/actions/sinks/test_redis.py"

MUTANTS = (
    Mutant(
        name="HBase's tables of the options are never read",
        file="actions/sinks/hbase/sink.py",
        old="        for row in self._rows:\n",
        new="        for row in ():\n",
        caught_by=(f"{HBASE}::test_tables_of_the_options_make_mutations",),
        rows=("W59",),
    ),
    Mutant(
        name="commands of a message go one by one",
        file="actions/sinks/redis/sink.py",
        old='        return [("MULTI",), *wanted.commands, ("EXEC",)]\n',
        new="        return wanted.commands\n",
        caught_by=(f"{REDIS}::test_batch_is_one_round_trip_with_an_answer_each",),
        rows=("W60",),
    ),
    Mutant(
        name="a repeat is carried out again in spite of once",
        file="actions/sinks/redis/sink.py",
        old="marker = None if idempotent or not self._given.once else",
        new="marker = None if True else",
        caught_by=(f"{REDIS}::test_repeat_leaves_a_second_effect_only_without_once",),
        rows=("W60",),
    ),
    Mutant(
        name="a key goes to any host",
        file="actions/sinks/redis/sink.py",
        old="    return zlib.crc32(raw) % hosts\n",
        new="    return (zlib.crc32(raw) + id(command)) % hosts\n",
        caught_by=(f"{REDIS}::test_one_host_per_redis_key_and_others_go_on_when_one_is_away",),
        rows=("W60",),
    ),
    Mutant(
        name="the ledger does not say what is on its way",
        file="actions/sinks/files/writer.py",
        old="            file.pending = Pending(file.length + len(data), crc32(data), offsets)\n",
        new="            file.pending = Pending(file.length + len(data), 0, offsets)\n",
        caught_by=(f"{FILES}::test_each_message_is_once_in_the_files_whatever_moment_the_node_dies",),
        rows=("W61",),
    ),
    Mutant(
        name="a file is not cut after a kill",
        file="actions/sinks/files/settling.py",
        old="        await folders.truncate(path, file.length)\n",
        new="        file.length = size\n",
        caught_by=(f"{FILES}::test_each_message_is_once_in_the_files_whatever_moment_the_node_dies",),
        rows=("W61",),
    ),
    Mutant(
        name="lines of text are not escaped",
        file="actions/sinks/files/formats.py",
        old='        if b"\\\\" in raw or b"\\n" in raw or b"\\r" in raw:\n',
        new="        if False:\n",
        caught_by=(f"{FILES}::test_text_lines_are_escaped",),
        rows=("W61",),
    ),
    Mutant(
        name="open files have no bound",
        file="actions/sinks/files/writer.py",
        old="        while len(self._current) > self._limits.files_max:\n",
        new="        while False:\n",
        caught_by=(f"{FILES}::test_open_files_are_bounded",),
        rows=("W61",),
    ),
    Mutant(
        name="what may come again is known for one kill",
        file="actions/sinks/files/ledger.py",
        old="        waiting = [(0, qid, done.ranges) for qid, done in self.done.items() if done.ranges]\n",
        new="        waiting: list[tuple[int, str, list[Range]]] = []\n",
        caught_by=(f"{FILES}::test_what_comes_again_only_after_a_second_kill_is_not_written_twice",),
    ),
    Mutant(
        name="an outage counts towards forgetting repeats",
        file="actions/sinks/files/writer.py",
        old="            self._forget_at = None\n            refusal",
        new="            refusal",
        caught_by=(f"{FILES}::test_repeats_are_known_however_long_a_pause_or_an_outage_takes",),
    ),
    Mutant(
        name="a file of a killed life stays open until a message comes",
        file="actions/sinks/files/sink.py",
        old="call_later(LOOK_SECONDS, self._look)",
        new="call_later(LOOK_SECONDS, int)",
        caught_by=(
            f"{FILES}::test_file_that_a_killed_life_left_open_is_closed_though_no_message_comes",
            "tests/simulation/test_sinking.py::test_every_message_has_one_outcome_through_kills_and_troubles",
        ),
    ),
    Mutant(
        name="a round trip that was lost counts as done",
        file="actions/sinks/redis/sink.py",
        old="            return [away.failed(str(error))] * len(wanted)\n",
        new="            return [Status.FINISH] * len(wanted)\n",
        caught_by=("tests/simulation/test_sinking.py::test_every_message_has_one_outcome_through_kills_and_troubles",),
    ),
)
