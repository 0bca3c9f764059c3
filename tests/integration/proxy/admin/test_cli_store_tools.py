"""`pyddmq store check | stat | dump | find | backup | restore` in process, on the real disk."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from broker.runtime.disk import RealDisk
from broker.store import Store
from proxy.cli.app import run
from proxy.process.exit_codes import ExitCode
from pyddmq.testing import ManualClock
from tests.integration.store_tools import open_store

START_MS = 1_700_000_000_000
Capture = pytest.CaptureFixture[str]


@pytest.fixture
def live(tmp_path: Path) -> Store:
    """An open store: a minute between any two messages."""
    clock = ManualClock(wall_ms=START_MS)
    store = open_store(RealDisk(), root=str(tmp_path / "data"), clock=clock)
    store.create_topic("orders", 2)
    store.create_topic("other", 1)
    for number in range(40):
        store.put(
            "orders",
            b'{"order": %d}' % number,
            key=f"case-{number} all",
            tags="odd" if number % 2 else "even",
            properties={"shop": f"s{number % 4}"},
            queue_id=number % 2,
        )
        clock.advance(60)
    store.put("other", b"\x00\xff raw")
    return store


@pytest.fixture
def data(live: Store) -> Path:
    """The same, closed."""
    live.close()
    return Path(live.root)


def json_lines(capsys: Capture) -> list[dict[str, Any]]:
    """What was printed."""
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def offsets(capsys: Capture) -> list[tuple[str, int, int]]:
    """Topic, queue and offset of the records printed."""
    return [(each["topic"], each["queue"], each["offset"]) for each in json_lines(capsys)]


def test_check_of_a_sound_store_says_what_it_read(data: Path, capsys: Capture) -> None:
    """Exit code 0 and a summary."""
    assert run(["store", "check", str(data)]) == ExitCode.OK
    assert "41 records and 41 queue units" in capsys.readouterr().out
    assert run(["store", "check", str(data), "--json"]) == ExitCode.OK
    [summary] = json_lines(capsys)
    assert summary["summary"]["records"] == 41
    assert summary["summary"]["live"] is False


def test_check_of_a_live_store_notes_it(live: Store, capsys: Capture) -> None:
    """Nothing is changed, and nothing is wrong."""
    assert run(["store", "check", live.root]) == ExitCode.OK
    out = capsys.readouterr().out
    assert "has the store open" in out
    assert out.endswith("0 damaged places, 0 warnings, 1 note\n")
    assert run(["store", "check", live.root, "--repair", "--yes"]) == ExitCode.DATA_UNUSABLE
    assert "in use" in capsys.readouterr().err
    live.close()


def test_damage_is_told_then_planned_then_mended(data: Path, capsys: Capture) -> None:
    """File and position; a dry run changes nothing; --yes mends; then the check is clean."""
    path = data / "commitlog" / f"{4096:020d}"
    raw = bytearray(path.read_bytes())
    raw[1000] ^= 1
    path.write_bytes(raw)
    assert run(["store", "check", str(data), "--json"]) == ExitCode.DAMAGE_FOUND
    hole = next(line for line in json_lines(capsys) if line.get("kind") == "log_hole")
    assert hole["file"] == f"commitlog/{4096:020d}"
    assert 0 < hole["position"] <= 1000
    before = {each: each.read_bytes() for each in data.rglob("*") if each.is_file()}
    assert run(["store", "check", str(data), "--repair"]) == ExitCode.DAMAGE_FOUND
    out = capsys.readouterr().out
    assert "repair would: filled with records" in out
    assert "nothing was changed" in out
    assert {each: each.read_bytes() for each in data.rglob("*") if each.is_file()} == before
    assert run(["store", "check", str(data), "--repair", "--yes"]) == ExitCode.OK
    assert "repaired: filled with records" in capsys.readouterr().out
    assert run(["store", "check", str(data)]) == ExitCode.OK


def test_yes_alone_is_refused(data: Path) -> None:
    """A typing error must not change a store."""
    assert run(["store", "check", str(data), "--yes"]) == ExitCode.USAGE


@pytest.mark.parametrize("command", ["check", "stat", "dump", "find --key x", "check --repair --yes", "backup"])
def test_folder_without_store_is_told_and_not_made(tmp_path: Path, capsys: Capture, command: str) -> None:
    """For every command."""
    name, *options = command.split()
    target = [str(tmp_path / "copy")] if name == "backup" else []
    assert run(["store", name, str(tmp_path / "none"), *target, *options]) == ExitCode.DATA_UNUSABLE
    assert "has no store" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_stat_shows_sizes_times_and_queues(data: Path, capsys: Capture) -> None:
    """As text and as JSON."""
    assert run(["store", "stat", str(data), "--json"]) == ExitCode.OK
    [shown] = json_lines(capsys)
    assert (shown["segmentBytes"], shown["queueFileUnits"], shown["live"]) == (4096, 8, False)
    assert (shown["first"], shown["last"]) == (START_MS, START_MS + 40 * 60_000)
    assert shown["topics"][0] == {
        "topic": "orders",
        "messageType": "MIXED",
        "queues": [{"queue": 0, "min": 0, "max": 20}, {"queue": 1, "min": 0, "max": 20}],
    }
    assert shown["bytes"]["commitlog"] == shown["logFiles"] * 4096
    assert run(["store", "stat", str(data)]) == ExitCode.OK
    assert "2023-11-14T22:13:20.000Z" in capsys.readouterr().out


def test_dump_prints_the_log_in_order(data: Path, capsys: Capture) -> None:
    """With bodies where asked for, up to the limit."""
    assert run(["store", "dump", str(data), "--limit", "3", "--json", "--body"]) == ExitCode.OK
    lines = json_lines(capsys)
    assert [line["body"] for line in lines] == ['{"order": 0}', '{"order": 1}', '{"order": 2}']
    assert lines[1]["keys"] == "case-1 all"
    assert lines[1]["properties"]["shop"] == "s1"
    assert lines[1]["storedMs"] == START_MS + 60_000
    assert run(["store", "dump", str(data), "--position", str(lines[1]["position"]), "--limit", "1"]) == ExitCode.OK
    assert "orders  1@0" in capsys.readouterr().out


def test_dump_of_a_queue_begins_at_offset_or_time(data: Path, capsys: Capture) -> None:
    """Offsets of one queue, and moments in every form."""
    queue = ["store", "dump", str(data), "--json", "--topic", "orders", "--queue", "1"]
    assert run([*queue, "--offset", "18"]) == ExitCode.OK
    assert offsets(capsys) == [("orders", 1, 18), ("orders", 1, 19)]
    assert run([*queue, "--since", str(START_MS + 37 * 60_000)]) == ExitCode.OK
    assert offsets(capsys) == [("orders", 1, 18), ("orders", 1, 19)]
    assert run([*queue, "--since", "2023-11-14T22:50:20Z", "--until", "2023-11-14T22:51:00Z"]) == ExitCode.OK
    assert offsets(capsys) == [("orders", 1, 18)]
    assert run(["store", "dump", str(data), "--json", "--since", "2023-11-14T23:51:20+01:00"]) == ExitCode.OK
    assert offsets(capsys) == [("orders", 0, 19), ("orders", 1, 19), ("other", 0, 0)]
    assert run(["store", "dump", str(data), "--json", "--since", "1m ago"]) == ExitCode.OK
    assert offsets(capsys) == []


@pytest.mark.parametrize(
    ("options", "found"),
    [
        (["--key", "case-7"], [("orders", 1, 3)]),
        (["--property", "shop=s3", "--property", "TAGS=odd", "--limit", "2"], [("orders", 1, 1), ("orders", 1, 3)]),
        (["--text", '"order": 39'], [("orders", 1, 19)]),
        (["--hex", "00ff"], [("other", 0, 0)]),
        (["--regex", r"order\W+1?2}"], [("orders", 0, 1), ("orders", 0, 6)]),
        (["--key", "all", "--queue", "0", "--topic", "orders", "--limit", "1"], [("orders", 0, 0)]),
        (["--key", "all", "--since", str(START_MS + 39 * 60_000)], [("orders", 1, 19)]),
    ],
)
def test_find_scans_for_what_is_asked(
    data: Path, capsys: Capture, options: list[str], found: list[tuple[str, int, int]]
) -> None:
    """All conditions must be met."""
    assert run(["store", "find", str(data), "--json", *options]) == ExitCode.OK
    assert offsets(capsys) == found


def test_find_by_unique_key_and_of_nothing(data: Path, capsys: Capture) -> None:
    """Nothing found is an exit code of its own."""
    assert run(["store", "dump", str(data), "--json", "--limit", "5"]) == ExitCode.OK
    wanted = json_lines(capsys)[4]
    assert run(["store", "find", str(data), "--json", "--unique-key", wanted["uniqKey"]]) == ExitCode.OK
    assert json_lines(capsys) == [wanted]
    assert run(["store", "find", str(data), "--unique-key", "none"]) == ExitCode.NOT_FOUND


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["dump", "--since", "yesterday"], "not a valid time"),
        (["dump", "--since", "2023-11-14T22:50:20"], "no time zone"),
        (["dump", "--offset", "1"], "--offset needs"),
        (["dump", "--queue", "1"], "--queue needs"),
        (["find"], "pass a condition"),
        (["find", "--hex", "0"], "pairs of hex digits"),
        (["find", "--regex", "("], "not a valid regular expression"),
        (["find", "--property", "x"], "NAME=VALUE"),
    ],
)
def test_wrong_options_are_told(data: Path, capsys: Capture, arguments: list[str], text: str) -> None:
    """A sentence each, exit code 2."""
    name, *options = arguments
    assert run(["store", name, str(data), *options]) == ExitCode.USAGE
    assert text in capsys.readouterr().err


def test_unknown_topic_and_queue_are_told(data: Path, capsys: Capture) -> None:
    """With what there is."""
    assert run(["store", "dump", str(data), "--topic", "x"]) == ExitCode.NOT_FOUND
    assert "no topic 'x'" in capsys.readouterr().err
    assert run(["store", "dump", str(data), "--topic", "orders", "--queue", "2"]) == ExitCode.NOT_FOUND
    assert "0 to 1" in capsys.readouterr().err


def test_backup_of_a_live_store_is_checked_and_restored(live: Store, tmp_path: Path, capsys: Capture) -> None:
    """The node goes on; the restored store has everything."""
    copy, back = tmp_path / "copy", tmp_path / "back"
    assert run(["store", "backup", live.root, str(copy), "--json"]) == ExitCode.OK
    [reported] = json_lines(capsys)
    assert (reported["verified"], reported["findings"], reported["logEnd"]) == (True, 0, live.end)
    live.put("orders", b"later")
    live.close()
    assert run(["store", "restore", str(copy), str(back)]) == ExitCode.OK
    assert "all checksums correct" in capsys.readouterr().out
    assert run(["store", "dump", str(back), "--json", "--limit", "0"]) == ExitCode.OK
    assert len(json_lines(capsys)) == 41
    assert not (tmp_path / "back.restoring").exists()


def test_restore_never_overwrites(data: Path, tmp_path: Path, capsys: Capture) -> None:
    """Nor does a backup; nor does it copy into its own source."""
    copy = tmp_path / "copy"
    assert run(["store", "backup", str(data), str(copy)]) == ExitCode.OK
    assert run(["store", "restore", str(copy), str(data)]) == ExitCode.DATA_UNUSABLE
    assert "not empty" in capsys.readouterr().err
    assert run(["store", "backup", str(data), str(copy)]) == ExitCode.DATA_UNUSABLE
    assert run(["store", "backup", str(data), str(data / "copy")]) == ExitCode.USAGE


def test_restore_of_a_damaged_backup_leaves_no_store(data: Path, tmp_path: Path, capsys: Capture) -> None:
    """No node can start on half of it."""
    copy = tmp_path / "copy"
    run(["store", "backup", str(data), str(copy)])
    (copy / "checkpoint").unlink()
    assert run(["store", "restore", str(copy), str(tmp_path / "back")]) == ExitCode.DATA_UNUSABLE
    assert "is missing" in capsys.readouterr().err
    assert not (tmp_path / "back").exists()
