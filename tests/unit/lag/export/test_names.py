"""Names of exported files: what is contained does not count, and no row counts twice."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lag.export.names import ExportFile, LiveFile, live_files, parse, shown_place

DAY = "2026-11-23"


def file_of(first: int, last: int, *, node: str = "n", epoch: int = 1, date: str = DAY) -> ExportFile:
    """Return a file of these sequences."""
    return ExportFile("queues", date, node, epoch, first, last)


files = st.builds(
    lambda node, epoch, first, more: file_of(first, first + more, node=node, epoch=epoch),
    st.sampled_from(["a", "b"]),
    st.integers(1, 2),
    st.integers(0, 20),
    st.integers(0, 10),
)


@given(st.builds(ExportFile, st.just("queues"), st.dates().map(str), st.text(min_size=1), st.integers(0, (1 << 64) - 1),
                 st.integers(0, 1000), st.integers(1000, 10**12 - 1)))  # fmt: skip
def test_names_say_what_a_file_is_and_back(file: ExportFile) -> None:
    """Whatever the node is called; nothing in a name that a URL or a file system takes for something else."""
    assert parse(file.name) == file
    assert set(file.name) <= set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./=")


@pytest.mark.parametrize(
    "name",
    [
        "queues/date=2026-11-23/_unfinished.n.0000000000000001.000000000000-000000000001.parquet",
        "queues/date=2026-11-23/n.0000000000000001.000000000002-000000000001.parquet",
        "others/date=2026-11-23/n.0000000000000001.000000000000-000000000001.parquet",
        "queues/date=2026-11-23/_ff.0000000000000001.000000000000-000000000001.parquet",
        "queues/_SUCCESS",
        "",
    ],
)
def test_other_names_are_passed_over(name: str) -> None:
    """Files that are not whole among them."""
    assert parse(name) is None
    assert live_files([name]) == []


@given(st.lists(files, max_size=12))
def test_each_row_that_was_exported_counts_once(drawn: list[ExportFile]) -> None:
    """Over any files, contained, overlapping or apart, in any order."""
    live = live_files(file.name for file in drawn)
    counted = Counter((each.file.node, each.file.epoch, n) for each in live for n in range(each.first, each.last + 1))
    assert set(counted) == {(file.node, file.epoch, n) for file in drawn for n in range(file.first, file.last + 1)}
    assert max(counted.values(), default=1) == 1
    assert all(each.file.first <= each.first <= each.last <= each.file.last for each in live)


@given(st.data())
def test_exports_and_compactions_that_are_killed_count_each_row_once(data: st.DataObject) -> None:
    """A history of runs: each goes on where it believes it is, some are killed, files are merged, contained ones go."""
    listing: set[str] = set()
    written = 0
    for _ in range(data.draw(st.integers(1, 12))):
        step = data.draw(st.sampled_from(["export", "export again", "compact", "delete"]))
        live = live_files(listing)
        covered = max((each.last for each in live), default=-1)
        if step == "export":
            written = max(written, covered + data.draw(st.integers(1, 5)))
            if data.draw(st.booleans()):
                listing.add(file_of(covered + 1, written).name)
            else:
                # Killed: the file has not its name yet.
                listing.add(file_of(covered + 1, written).name.replace("/n.", "/_unfinished.n."))
        elif step == "export again" and covered >= 0:
            # Two at a time: one has not seen what the other wrote.
            begin = data.draw(st.integers(0, covered))
            written = max(written, covered + 2)
            listing.add(file_of(begin, covered + 2).name)
        elif step == "compact" and live:
            listing.add(file_of(live[0].first, live[-1].last).name)
        elif step == "delete":
            counted = {each.file.name for each in live}
            contained = [name for name in sorted(listing) if parse(name) and name not in counted]
            if contained:
                listing.discard(data.draw(st.sampled_from(contained)))
        found = [n for each in live_files(listing) for n in range(each.first, each.last + 1)]
        assert found == sorted(set(found))
        assert found == list(range(len(found)))


def test_larger_file_takes_the_place_of_those_that_it_contains() -> None:
    """Of its own start and day only."""
    small, large = file_of(3, 5), file_of(0, 9)
    others = [file_of(3, 5, node="m"), file_of(3, 5, epoch=2), file_of(3, 5, date="2026-11-24")]
    live = live_files(each.name for each in [small, large, *others])
    assert sorted(live) == sorted([LiveFile(large, 0, 9), *(LiveFile(each, 3, 5) for each in others)])
    assert all(each.is_whole for each in live)


def test_of_two_that_overlap_the_later_counts_from_where_the_earlier_ends() -> None:
    """Whoever reads takes those rows of it."""
    assert live_files([file_of(0, 5).name, file_of(4, 9).name]) == [
        LiveFile(file_of(0, 5), 0, 5),
        LiveFile(file_of(4, 9), 6, 9),
    ]


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("s3://KEY:sec%2Fret@bucket/lag?region=eu", "s3://***@bucket/lag?region=eu"),
        ("hdfs://user@host:8020/lag", "hdfs://***@host:8020/lag"),
        ("s3://bucket/l@g", "s3://bucket/l@g"),
        ("/mnt/l@g", "/mnt/l@g"),
    ],
)
def test_key_and_secret_of_a_place_are_not_shown(url: str, shown: str) -> None:
    """A report names its sources, and is mailed."""
    assert shown_place(url) == shown
