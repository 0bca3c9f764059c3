"""Queues of keys, names that are paths, pages without bytes, records inside records, the folder, features not given."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

CHOICE = "tests/integration/proxy/services/test_queue_choice.py"
NAMES = "tests/integration/broker/store/test_hostile_names.py"
PAGES = "tests/integration/broker/store/test_unreadable_pages.py::test_unreadable_page_costs_what_lies_on_it"
NESTED = "tests/integration/broker/store/test_nested_records.py"
FEATURES = "tests/integration/broker/store/test_features.py"
FOLDER = "tests/integration/broker/store/test_data_folder.py"

FULL = "tests/integration/broker/store/test_retention_full_disk.py"

MUTANTS = (
    Mutant(
        name="a full disk gets no room for the checkpoint that a due file waits for",
        file="broker/retention.py",
        old="            if self._checkpointer.is_postponed:\n                self._space.give_back()\n",
        new="",
        caught_by=(f"{FULL}::test_full_disk_gets_room_from_an_old_file",),
    ),
    Mutant(
        name="publishes have the spare file set aside anew before the checkpoint is written",
        file="broker/log/segment_space.py",
        old="(not self.is_given_back and self._make_spare())",
        new="self._make_spare()",
        caught_by=(f"{FULL}::test_publishes_get_nothing_of_what_is_given_back",),
    ),
    Mutant(
        name="a start does not know that the spare file was given back",
        file="broker/log/segment_space.py",
        old="as file:\n                file.truncate(0)\n",
        new="as file:\n                self._disk.remove(self._path)\n",
        caught_by=(f"{FULL}::test_stop_at_every_change_leaves_a_store_that_goes_on",),
    ),
    Mutant(
        name="store.json is believed whatever sizes the files have",
        file="broker/tools/interchange.py",
        old="        if told not in sizes and count > 1:\n",
        new="        if told not in sizes and not count:\n",
        caught_by=("tests/integration/broker/store/test_store_check.py::test_sizes_that_no_file_has_are_refused",),
    ),
    Mutant(
        name="numbers in properties have no bound",
        file="broker/format/numbers.py",
        old="    if text and len(text) <= digits_max and text.isascii()",
        new="    if text and text.isascii()",
        caught_by=(
            "tests/unit/broker/format/test_numbers.py::test_what_is_no_number_is_none",
            "tests/unit/broker/format/test_numbers.py::test_records_with_such_a_number_are_as_without_it",
        ),
    ),
    Mutant(
        name="other scripts' digits are read as numbers",
        file="broker/format/numbers.py",
        old="len(text) <= digits_max and text.isascii() and text.isdigit():",
        new="len(text) <= digits_max and text.isdigit():",
        caught_by=("tests/unit/broker/format/test_numbers.py::test_what_is_no_number_is_none",),
    ),
    Mutant(
        name="the sign of a key's hash is masked where a Python send chooses the queue",
        file="proxy/services/message_checks.py",
        old="queue_id = queue_of_hash(self._key_hash(key), queues)",
        new="queue_id = (self._key_hash(key) & 0x7FFF_FFFF) % queues",
        caught_by=(f"{CHOICE}::test_no_other_place_computes_a_queue_from_a_hash",),
    ),
    Mutant(
        name="any name in a file is a topic's",
        file="broker/runtime/names.py",
        old='_STORED = re.compile(rb"[%|a-zA-Z0-9_-]{1,255}")',
        new='_STORED = re.compile(rb".+", re.DOTALL)',
        caught_by=(
            f"{NAMES}::test_name_that_no_topic_can_have_is_refused",
            f"{NAMES}::test_crafted_backup_is_refused_and_changes_nothing",
        ),
    ),
    Mutant(
        name="links in a backup are followed",
        file="upstream/tools/backup.py",
        old="    _refuse_links(folder, files, disk)\n",
        new="",
        caught_by=(f"{NAMES}::test_symbolic_link_in_a_backup_is_refused",),
    ),
    Mutant(
        name="cold pages are looked at before they are read",
        file="broker/log/log_pages.py",
        old="        if physical >= self.unsure_end:\n            return True\n        number, start = divmod("
        "physical, self._segment_bytes)\n        windows",
        new="        return True\n        number, start = divmod(physical, self._segment_bytes)\n        windows",
        caught_by=(f"{PAGES}[reading]", f"{PAGES}[walking]"),
    ),
    Mutant(
        name="units of this process on a bad page are taken as the file has them",
        file="broker/queues/consume_queue.py",
        old="        self.checked_from = max(self.checked_from, self._tail_base)\n",
        new="        pass\n",
        caught_by=(
            "tests/integration/broker/store/test_each_bad_page.py::test_bad_page_costs_the_records_on_it_alone",
            "tests/simulation/test_bad_pages.py::test_bad_page_of_a_queue_file_loses_no_message",
        ),
    ),
    Mutant(
        name="what reads as a record inside a damaged one is taken",
        file="broker/log/nested.py",
        old="        return end if at < end else found\n",
        new="        return found\n",
        caught_by=(f"{NESTED}::test_damaged_host_at_the_end_of_the_log_is_cut_whole",),
    ),
    Mutant(
        name="a store is made among somebody's files",
        file="broker/opening/opening.py",
        old="        _refuse_others_files(root, disk)\n",
        new="",
        caught_by=(f"{FOLDER}::test_folder_of_somebody_elses_files_is_refused",),
    ),
    Mutant(
        name="files are readable for all",
        file="broker/runtime/disk.py",
        old="_FILE_MODE, _FOLDER_MODE = 0o600, 0o700",
        new="_FILE_MODE, _FOLDER_MODE = 0o644, 0o755",
        caught_by=(f"{FOLDER}::test_data_directory_and_backup_are_the_owners_alone",),
    ),
    Mutant(
        name="a store is opened without a feature whose files it has",
        file="broker/opening/opening.py",
        old="    given.check(root, topics=topics_named(root, disk), files=marked_files(root, disk=disk))\n",
        new="",
        caught_by=(
            f"{FEATURES}::test_store_is_refused_without_a_feature_that_it_needs",
            f"{FEATURES}::test_marks_are_those_of_the_features",
        ),
    ),
    Mutant(
        name="recovery takes up a topic of a feature that was not given",
        file="broker/queues/topics.py",
        old="            self.admit(name)\n",
        new="",
        caught_by=(f"{FEATURES}::test_topic_that_only_the_log_knows_is_refused_too",),
    ),
    Mutant(
        name="a topic of a feature that was not given is written down before it is refused",
        file="broker/topic_changes.py",
        old="            self._topics.admit(name)\n",
        new="            pass\n",
        caught_by=(f"{FEATURES}::test_topic_of_a_missing_feature_cannot_be_made",),
    ),
    Mutant(
        name="a message is delivered at once where nothing makes it wait",
        file="broker/waits.py",
        old='        raise MessageRefused("the store is open without the feature by which the message is to wait")\n',
        new="        return put\n",
        caught_by=(f"{FEATURES}::test_message_is_refused_where_nothing_makes_it_wait",),
    ),
    Mutant(
        name="of two keys in a block of others the first counts",
        file="broker/format/properties.py",
        old='    start = block.rfind(b"\\x02" + name + b"\\x01")',
        new='    start = block.find(b"\\x02" + name + b"\\x01")',
        caught_by=(
            "tests/unit/upstream/delivery/test_source.py"
            "::test_properties_in_a_store_of_others_are_read_as_rocketmq_does",
        ),
    ),
)
