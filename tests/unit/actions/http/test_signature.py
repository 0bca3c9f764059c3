"""The signature (W63)."""

from __future__ import annotations

import hmac

import pytest

from actions.http.signature import sign

PARTS = {"time_s": 1_700_000_000, "key_id": "2026-a", "topic": "orders", "query": "a=1&b=2", "body": b'{"n":1}'}


def test_signature_is_an_hmac_over_all_parts() -> None:
    """The text is that of the module, which receivers build as well."""
    text = b'v1\n1700000000\n2026-a\norders\na=1&b=2\n{"n":1}'
    assert sign(b"s3cret", **PARTS) == "v1=" + hmac.new(b"s3cret", text, "sha256").hexdigest()  # type: ignore[arg-type]
    assert (
        sign(b"s3cret", **PARTS)  # type: ignore[arg-type]
        == "v1=7e151de621f8dc1a1b2c61adddaf545981f5678f0cb09d4ace4a2460ee2374d1"
    )


@pytest.mark.parametrize(
    ("part", "value"),
    [("time_s", 1_700_000_001), ("key_id", "2026-b"), ("topic", "order"), ("query", "a=1&b=3"), ("body", b'{"n":2}')],
)
def test_signature_changes_with_each_part(part: str, value: object) -> None:
    """W63: a captured token of DDMQ's is good for any body, topic and time."""
    assert sign(b"k", **{**PARTS, part: value}) != sign(b"k", **PARTS)  # type: ignore[arg-type]
