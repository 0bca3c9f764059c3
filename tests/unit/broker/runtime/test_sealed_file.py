"""JSON with its checksum: what was sealed is read, and nothing else."""

from __future__ import annotations

import pytest

from broker.runtime.sealed_file import sealed, unsealed


def test_what_was_sealed_is_read() -> None:
    """The same values, whatever their order in the text."""
    data = {"b": [1, -2, None], "a": {"é": "x"}}
    assert unsealed(sealed(data)) == data


def test_any_other_byte_is_damage() -> None:
    """Or another value that is JSON, too."""
    raw = sealed({"number": 12})
    for place in range(len(raw) - 1):
        with pytest.raises(ValueError, match="checksum"):
            unsealed(raw[:place] + bytes([raw[place] ^ 1]) + raw[place + 1 :])


@pytest.mark.parametrize("raw", [b"", b"[]", b"{}", b"null", b"[" * 100_000, b'{"data":1}', b"\xff"])
def test_what_is_no_such_json_is_damage(raw: bytes) -> None:
    """However deep it is nested."""
    with pytest.raises(ValueError, match="checksum"):
        unsealed(raw)
