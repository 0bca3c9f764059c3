"""The files of a store: queues, index, checkpoint, settings."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

QUEUE = "tests/unit/broker/queues/test_consume_queue.py"
JAVA = "tests/unit/broker/format/test_java.py"
FOREIGN = "tests/unit/broker/opening/test_foreign.py"
INDEX = "tests/integration/broker/store/test_index.py"
STATE = "tests/unit/broker/runtime/test_state_file.py"
TOPICS = "tests/unit/broker/queues/test_topics.py"

COMMIT = "tests/unit/broker/log/test_group_commit.py"
BACKGROUND = "tests/integration/broker/store/test_store_background.py"

MUTANTS = (
    Mutant(
        name="the next flush begins when those of this one are told",
        file="broker/log/group_commit.py",
        old="        driver.on_shown(sum([batch.is_last for batch in self._shown]))\n        self.begin()\n",
        new="        driver.on_shown(sum([batch.is_last for batch in self._shown]))\n",
        caught_by=(f"{COMMIT}::test_way_back_is_shown_next_begun_told",),
    ),
    Mutant(
        name="what a flush has written is shown before its sync has ended",
        file="broker/log/group_commit.py",
        old="            return False\n        self._sync_oldest()\n",
        new=(
            "            return False\n"
            "        for batch in batches:\n"
            "            self._log.visible_end = batch.end\n"
            "            for queue, offset in batch._queues:\n"
            "                queue.max_offset = offset\n"
            "        self._sync_oldest()\n"
        ),
        caught_by=(f"{BACKGROUND}::test_nothing_shows_before_the_sync_has_ended",),
    ),
    Mutant(
        name="a flush that waits does not note that the one on its way is durable",
        file="broker/log/group_commit.py",
        old="                if batch.state is WRITTEN:\n",
        new="                if batch.state is None:\n",
        caught_by=(f"{COMMIT}::test_flush_completes_what_is_under_way_without_a_sync_of_its_own",),
    ),
    Mutant(
        name="a queue file is named by its first unit, not by its first byte",
        file="broker/queues/consume_queue.py",
        old='            path = f"{self._folder}/{number * self.file_units * UNIT_BYTES:020d}"\n',
        new='            path = f"{self._folder}/{number * self.file_units:020d}"\n',
        caught_by=(f"{QUEUE}::test_files_have_rocketmqs_names_and_full_size",),
    ),
    Mutant(
        name="a queue that starts inside a file begins with empty units",
        file="broker/queues/consume_queue.py",
        old="                file.write(0, [FILLER_BYTES * missing])\n",
        new="                file.write(0, [bytes(UNIT_BYTES * missing)])\n",
        caught_by=(f"{QUEUE}::test_queue_that_starts_inside_a_file_begins_with_fillers",),
    ),
    Mutant(
        name="an offset that is taken gets another unit",
        file="broker/queues/consume_queue.py",
        old="        if gap < 0:\n            return -1\n        if gap:\n",
        new="        if gap > 0:\n",
        caught_by=(f"{QUEUE}::test_gap_becomes_fillers_and_a_taken_offset_is_refused",),
    ),
    Mutant(
        name="an append is acknowledged before its record is synced",
        file="broker/log/commit_log.py",
        old="            segment.file.sync()\n            segment.unsynced = False\n",
        new="            segment.unsynced = False\n",
        caught_by=(
            "tests/integration/broker/store/test_store_recovery.py::test_every_acknowledged_append_survives_any_stop",
        ),
    ),
    Mutant(
        name="a tag's hash runs over characters, not over UTF-16 units",
        file="broker/format/java.py",
        old='array("H", text.encode(_UTF_16, "surrogatepass"))',
        new='array("L", map(ord, text))',
        caught_by=(f"{JAVA}::test_string_hash_equals_javas",),
    ),
    Mutant(
        name="a unit made anew has no tags code",
        file="broker/opening/queue_build.py",
        old="            entry.physical, entry.size, unit_code(",
        new="            entry.physical, entry.size, 0 and unit_code(",
        caught_by=(f"{FOREIGN}::test_tags_are_taken_from_records_and_not_from_extension_units",),
    ),
    Mutant(
        name="a topic whose queues hold batches is served as if they held messages",
        file="broker/opening/foreign.py",
        old='found.get("queue.type") == "BatchCQ"}',
        new='found.get("queue.type") == "BATCH"}',
        caught_by=(f"{FOREIGN}::test_what_would_be_served_wrongly_is_refused",),
    ),
    Mutant(
        name="an index entry does not lead to the one before it in its slot",
        file="broker/index/file.py",
        old="        before = slots[place]\n",
        new="        before = 0\n",
        caught_by=(f"{INDEX}::test_files_are_laid_out_as_rocketmq_does",),
    ),
    Mutant(
        name="a negative hash stands in the index without its sign bit, not as its amount",
        file="broker/index/keys.py",
        old="        return (-value if value & _SIGN else value) & _POSITIVE\n",
        new="        return value & _POSITIVE\n",
        caught_by=(f"{INDEX}::test_hash_is_javas",),
    ),
    Mutant(
        name="the index has its entries in another layout",
        file="broker/index/file.py",
        old='ENTRY = struct.Struct(">iqii")\n',
        new='ENTRY = struct.Struct(">qiii")\n',
        caught_by=("tests/interop/test_index.py::test_rocketmq_queries_by_our_index_and_writes_on",),
        seconds_max=600,
    ),
    Mutant(
        name="RocketMQ's checkpoint has the index time in another place",
        file="broker/opening/store_json.py",
        old="_CHECKPOINT.pack(ms, ms, checkpoint.index_ms, 0, checkpoint.log_end)",
        new="_CHECKPOINT.pack(ms, ms, 0, checkpoint.index_ms, checkpoint.log_end)",
        caught_by=("tests/unit/broker/opening/test_store_json.py::test_checkpoint_stands_in_both_forms",),
    ),
    Mutant(
        name="a clean stop leaves the mark of an open store",
        file="broker/opening/store_json.py",
        old="        self._disk.remove(self._path)\n        self._disk.sync_folder(self._root)\n",
        new="        self._disk.sync_folder(self._root)\n",
        caught_by=("tests/unit/broker/opening/test_store_json.py::test_abort_file_marks_an_open_store",),
    ),
    Mutant(
        name="a bare integer key below zero is not read",
        file="broker/runtime/json_keys.py",
        old=r"""_BARE_KEY = re.compile(r"([{,]\s*)(-?\d+)(\s*:)")""",
        new=r"""_BARE_KEY = re.compile(r"([{,]\s*)(\d+)(\s*:)")""",
        caught_by=(f"{STATE}::test_bare_integer_keys_are_read",),
    ),
    Mutant(
        name="a state file is put in place before its twin",
        file="broker/runtime/state_file.py",
        old="""        yield from self._twin.writing(twin)
        yield from writing_whole(self._disk, self.path, body, backup=self._backup)
""",
        new="""        yield from writing_whole(self._disk, self.path, body, backup=self._backup)
        yield from self._twin.writing(twin)
""",
        caught_by=(f"{STATE}::test_state_after_any_stop_is_old_or_new",),
    ),
    Mutant(
        name="the topic file lacks what RocketMQ asks of a topic",
        file="broker/queues/topics.py",
        old='            "order": False,\n',
        new="",
        caught_by=(f"{TOPICS}::test_topic_file_has_rocketmqs_shape",),
    ),
    Mutant(
        name="clients publish to retry topics",
        file="broker/queues/topics.py",
        old="        or name.startswith((DEAD_LETTER_PREFIX, RETRY_PREFIX))\n",
        new="        or name.startswith(DEAD_LETTER_PREFIX)\n",
        caught_by=(
            f"{TOPICS}::test_system_topics_are_told",
            "tests/integration/broker/store/test_broker_topics_refused.py::test_publish_to_a_topic_of_the_brokers_own_is_refused",
        ),
    ),
    Mutant(
        name="offsets stand under group and topic, not topic and group",
        file="broker/queues/offsets.py",
        old='            f"{topic}@{group}": {',
        new='            f"{group}@{topic}": {',
        caught_by=("tests/unit/broker/queues/test_offsets.py::test_offsets_survive_in_rocketmqs_shape",),
    ),
    Mutant(
        name="offsets go to RocketMQ one too high",
        file="broker/queues/offsets.py",
        old="{str(queue): offset for queue, offset in sorted(queues.items())}",
        new="{str(queue): offset + 1 for queue, offset in sorted(queues.items())}",
        caught_by=("tests/interop/test_their_store.py::test_store_goes_back_and_forth",),
        seconds_max=600,
    ),
)
