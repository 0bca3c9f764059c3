"""Small JSON files: shape, twins, healing."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.errors import StoreUnreadable
from broker.runtime.json_keys import parse_loose
from broker.runtime.sealed_file import SealedFile
from broker.runtime.state_file import StateFile
from pyddmq.testing import PowerCut, SimDisk

PATH, TWIN, BACKUP = "/s/config/x.json", "/s/pyddmq/x.json", "/s/config/x.json.bak"


def state(disk: SimDisk) -> StateFile:
    """A state file in its folders."""
    disk.make_folder("/s/config")
    disk.make_folder("/s/pyddmq")
    return StateFile(disk, "/s", "x.json")


def overwrite(disk: SimDisk, path: str, data: bytes) -> None:
    """Change a file behind the program's back."""
    file = disk.open(path)
    file.truncate(0)
    file.write(0, [data])


def test_bare_integer_keys_are_read() -> None:
    """Fastjson's form is read; texts that look like it are left alone."""
    text = '{"offsetTable":{"t@g":{0:5,-1 : 7},"odd{1:2}\\"{3:4}":{}}, 8:[1,2]}'
    assert parse_loose(text) == {"offsetTable": {"t@g": {"0": 5, "-1": 7}, 'odd{1:2}"{3:4}': {}}, "8": [1, 2]}
    with pytest.raises(ValueError, match="Expecting"):
        parse_loose('{"a":')


def test_saved_state_comes_back_with_a_backup_of_the_one_before() -> None:
    """The file, its .bak and the sealed twin are all there."""
    disk = SimDisk()
    file = state(disk)
    assert file.load() is None
    file.save({"a": 1})
    file.save({"a": "ü"})
    again = state(disk)
    assert (again.load(), again.changed_outside) == ({"a": "ü"}, False)
    assert disk.open(PATH).read(0, 99).decode() == '{"a":"ü"}'
    assert disk.open(BACKUP).read(0, 99) == b'{"a":1}'
    assert disk.exists(TWIN)


def test_file_changed_by_somebody_else_wins() -> None:
    """RocketMQ's tools may edit it; that is noticed."""
    disk = SimDisk()
    state(disk).save({"a": 1})
    overwrite(disk, PATH, b'{"a":{0:2}}')
    again = state(disk)
    assert (again.load(), again.changed_outside) == ({"a": {"0": 2}}, True)


@pytest.mark.parametrize("damage", [b"", b'{"a":', b"\xff\xfe", b"\x00" * 9])
def test_damaged_file_is_healed_from_the_twin_then_the_backup(damage: bytes) -> None:
    """One good copy is enough."""
    disk = SimDisk()
    file = state(disk)
    file.save({"a": 1})
    file.save({"a": 2})
    overwrite(disk, PATH, damage)
    assert state(disk).load() == {"a": 2}
    disk.flip_bit(TWIN, 40)
    assert state(disk).load() == {"a": 1}
    overwrite(disk, BACKUP, damage)
    with pytest.raises(StoreUnreadable, match="so are its copies"):
        state(disk).load()


@settings(max_examples=75)
@given(st.integers(0, 2**32), st.integers(0, 30), st.booleans())
def test_state_after_any_stop_is_old_or_new(seed: int, changes: int, power: bool) -> None:
    """A stop at any change leaves the last acknowledged version or the next, never one "changed outside"."""
    disk = SimDisk()
    file = state(disk)
    acknowledged = -1
    disk.stop_after(changes)
    try:
        for version in range(4):
            file.save({"version": version})
            acknowledged = version
    except PowerCut:
        pass
    if power:
        disk.crash(Random(seed))
    else:
        disk.kill()
    again = state(disk)
    found: Any = again.load()
    version = -1 if found is None else found["version"]
    assert acknowledged <= version <= acknowledged + 1
    assert not again.changed_outside
    again.save({"version": 9})
    assert state(disk).load() == {"version": 9}


def test_sealed_file_refuses_damage() -> None:
    """Any flipped bit of the data is seen."""
    disk = SimDisk()
    disk.make_folder("/s")
    file = SealedFile(disk, "/s/x")
    assert file.load() is None
    file.save({"n": [1, 2, "x"]})
    assert file.load() == {"n": [1, 2, "x"]}
    size = disk.open("/s/x").size()
    for offset in range(size - 1):
        disk.flip_bit("/s/x", offset)
        with pytest.raises(StoreUnreadable, match="checksum"):
            file.load()
        disk.flip_bit("/s/x", offset)
    assert file.load() == {"n": [1, 2, "x"]}


def test_two_stops_in_a_row_between_twin_and_file_are_nobody_elses_change() -> None:
    """The file is then two versions old and still ours: the newest twin is taken."""
    disk = SimDisk()
    state(disk).save({"version": 1})
    for version in (2, 3):
        file = state(disk)
        file.load()
        disk.stop_after(0, path_part="/config/")
        with pytest.raises(PowerCut):
            file.save({"version": version})
        disk.kill()
    file = state(disk)
    assert file.load() == {"version": 3}
    assert not file.changed_outside
