"""The low-level API: W67 to W74, W94."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

FETCHING = "tests/unit/upstream/fetch/test_fetching.py"
FETCHES = "tests/unit/pyddmq/test_fetches.py"

MUTANTS = (
    Mutant(
        name="the asked offset counts as delivered",
        file="upstream/fetch/fetching.py",
        old="        return min(max(stored if asked < 0 else asked, queue.min_offset), queue.max_offset)\n",
        new="        return min(max(stored if asked < 0 else asked + 1, queue.min_offset), queue.max_offset)\n",
        caught_by=(f"{FETCHING}::test_asked_offset_is_the_first_that_comes",),
        rows=("W67",),
    ),
    Mutant(
        name="a node has one fetcher for all names",
        file="upstream/fetch/fetchers.py",
        old="        fetcher = self.by_id.get(name)\n        is_new",
        new="        fetcher = next(iter(self.by_id.values()), None)\n        is_new",
        caught_by=(f"{FETCHING}::test_many_fetchers_of_one_node_share_the_queues",),
        rows=("W68",),
    ),
    Mutant(
        name="an expired fetcher stays and owns queues",
        file="upstream/fetch/fetchers.py",
        old="            del self.by_id[each.id]\n",
        new="            pass\n",
        caught_by=(f"{FETCHING}::test_many_fetchers_of_one_node_share_the_queues",),
        rows=("W69",),
    ),
    Mutant(
        name="a fetcher expires amid its work",
        file="upstream/fetch/fetchers.py",
        old="if not each.waiting and each.seen <= before]",
        new="if not each.waiting and each.fetched <= before]",
        caught_by=(f"{FETCHING}::test_silent_fetcher_expires_and_one_that_works_does_not",),
        rows=("W70",),
    ),
    Mutant(
        name="a first fetch begins at the end",
        file="upstream/fetch/fetching.py",
        old="max(stored if asked < 0 else asked,",
        new="max(queue.max_offset if asked < 0 else asked,",
        caught_by=(f"{FETCHING}::test_first_fetch_begins_where_the_group_stands",),
        rows=("W71",),
    ),
    Mutant(
        name="fetches get every tag",
        file="upstream/fetch/fetching.py",
        old="        wanted = Wanted(None if tags is None else",
        new="        wanted = Wanted(None if tags is tags else",
        caught_by=(f"{FETCHING}::test_tags_are_filtered_and_leave_no_lag",),
        rows=("W72",),
    ),
    Mutant(
        name="an ack counts for any queue",
        file="upstream/fetch/fetching.py",
        old="        if self.fetchers.owners.get(group_queue, consumer) != consumer:\n",
        new="        if not consumer:\n",
        caught_by=(f"{FETCHING}::test_ack_counts_for_who_owns_the_queue",),
        rows=("W73",),
    ),
    Mutant(
        name="a queue has one message more than its bound",
        file="upstream/fetch/fetching.py",
        old="        count = min(asked, generation.batch_max if is_owner else NAMED_COUNT_MAX)\n",
        new="        count = min(asked, generation.batch_max if is_owner else NAMED_COUNT_MAX) + 1\n",
        caught_by=(f"{FETCHING}::test_bounds_of_count_and_bytes",),
        rows=("W74",),
    ),
    Mutant(
        name="a fetcher acks what is not done with what is done behind it",
        file="pyddmq/client/pulling/fetches.py",
        old="        return self.open[0] if self.open else self.next\n",
        new="        return self.next\n",
        caught_by=(f"{FETCHES}::test_position_stands_at_the_first_that_is_not_done",),
        rows=("W94",),
    ),
    Mutant(
        name="empty fetches spin",
        file="pyddmq/client/pulling/fetcher.py",
        old="        if not moved and not any(each.messages for each in queues):\n",
        new="        if moved and not any(each.messages for each in queues):\n",
        caught_by=(f"{FETCHES}::test_empty_fetch_waits_by_itself_where_the_node_does_not",),
        rows=("W94",),
    ),
)
