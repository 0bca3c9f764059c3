"""Batches: RocketMQ's encoding, its refusals, and what becomes of a batch in the store."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

BATCH = "tests/unit/broker/log/test_batch.py"
PUT = "tests/integration/broker/store/test_put_batch.py"

MUTANTS = (
    Mutant(
        name="a member of a batch has the magic of a record",
        file="broker/log/batch.py",
        old="(_HEAD.pack(size, 0, 0, message.flag, ",
        new="(_HEAD.pack(size, -0x2557_5E59, 0, message.flag, ",
        caught_by=(f"{BATCH}::test_batch_is_encoded_and_decoded_as_by_rocketmq",),
    ),
    Mutant(
        name="a member's flag is read where its checksum stands",
        file="broker/log/batch.py",
        old="    size, _, _, flag, body_bytes = _HEAD.unpack_from(view, start)\n",
        new="    size, _, flag, _, body_bytes = _HEAD.unpack_from(view, start)\n",
        caught_by=("tests/interop/test_batches.py::test_rocketmq_decodes_our_batches",),
        seconds_max=600,
    ),
    Mutant(
        name="a batch of retries is taken",
        file="broker/log/batch.py",
        old="    if topic.startswith(RETRY_PREFIX):\n",
        new="    if topic == RETRY_PREFIX:\n",
        caught_by=(f"{BATCH}::test_what_rocketmq_refuses_is_refused",),
    ),
    Mutant(
        name="a member loses its flag in the store",
        file="broker/put_batch.py",
        old="unique_key, flag=flag)\n",
        new="unique_key)\n",
        caught_by=(f"{PUT}::test_members_become_adjacent_records_of_their_own",),
    ),
    Mutant(
        name="the id of a member names its place in the queue",
        file="broker/put_batch.py",
        old='(host + position.physical.to_bytes(8, "big"))',
        new='(host + position.offset.to_bytes(8, "big"))',
        caught_by=(f"{PUT}::test_offset_message_ids_are_rocketmqs",),
    ),
    Mutant(
        name="what a kill left of a batch is served",
        file="broker/opening/queue_build.py",
        old="        self._break_group()\n        if not self._held:\n            return 0, end\n",
        new="        self._settle()\n        if not self._held:\n            return 0, end\n",
        caught_by=("tests/lifecycle/test_kill_points.py::test_kill_at_some_changes_breaks_nothing[0-Batches]",),
    ),
    Mutant(
        name="an inner batch is handed out as one message",
        file="broker/format/body.py",
        old="    if flags & (SYS_INNER_BATCH | SYS_UNWRAP):\n",
        new="    if flags & SYS_INNER_BATCH and flags & SYS_UNWRAP:\n",
        caught_by=("tests/unit/broker/format/test_body.py::test_inner_batch_is_told",),
    ),
)
