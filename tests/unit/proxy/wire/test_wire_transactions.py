"""The calls and replies of transactions: what the node scans and writes, in both protocols."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.wire.call import parse_call
from proxy.wire.errors import ArgumentsError
from proxy.wire.limits import MESSAGES_MAX, PROPERTIES_MAX
from proxy.wire.scanning.scan import scan_send
from proxy.wire.transactions import (
    CheckCall,
    CheckRow,
    EndRequest,
    encode_checks_reply,
    encode_half_reply,
    scan_end,
    scan_fetch_checks,
    scan_half,
)
from tests.fakes.codec import decode_reply, encode_call
from tests.wire_values import PROTOCOLS, call, table, values

protocols = pytest.mark.parametrize("protocol", PROTOCOLS)


@protocols
@given(st.data())
def test_message_of_a_half_is_scanned_as_that_of_a_send(protocol: int, data: st.DataObject) -> None:
    """Every field, every combination of absent ones, comes out as the scanner of sendSync has it."""
    message = data.draw(values(table("producer", "Message")))
    half = scan_half(call(protocol, "sendHalfSync", {"message": message, "producerGroup": "g", "timeout": 9}))
    assert half.message == scan_send(call(protocol, "sendSync", {"message": message})).message
    assert (half.group, half.timeout_ms) == ("g", 9)


@protocols
def test_absent_fields_have_their_defaults(protocol: int) -> None:
    """What a client leaves out is judged by the service and never by chance."""
    half = scan_half(call(protocol, "sendHalfSync", {"message": {}}))
    assert (half.group, half.timeout_ms, half.message.topic, half.message.partition_id) == ("", None, b"", -1)
    assert scan_end(call(protocol, "endTransaction", {"decision": {}})) == EndRequest("", "", 0, False, "")
    assert scan_fetch_checks(call(protocol, "fetchChecks", {"request": {}})) == CheckCall("", None, None, [])


@protocols
def test_endings_are_scanned_alone_and_as_answers(protocol: int) -> None:
    """An answer to a check is the same struct, and answers keep their order."""
    ending = {"producerGroup": "g", "handle": "h", "state": 8, "fromCheck": True, "remark": "why"}
    assert scan_end(call(protocol, "endTransaction", {"decision": ending})) == EndRequest("g", "h", 8, True, "why")
    request = {"producerGroup": "g", "maxBatchSize": 7, "maxLingerTime": 500, "answers": [ending, {"state": 12}]}
    expected = [EndRequest("g", "h", 8, True, "why"), EndRequest("", "", 12, False, "")]
    assert scan_fetch_checks(call(protocol, "fetchChecks", {"request": request})) == CheckCall("g", 7, 500, expected)


@protocols
@pytest.mark.parametrize(
    ("name", "scan"), [("sendHalfSync", scan_half), ("endTransaction", scan_end), ("fetchChecks", scan_fetch_checks)]
)
def test_call_without_its_argument_is_undecodable(protocol: int, name: str, scan: Any) -> None:
    """As with the other methods, it is answered with kind 7 (D21)."""
    with pytest.raises(ArgumentsError, match=name):
        scan(call(protocol, name, {}))


@protocols
def test_numbers_of_properties_and_answers_are_bounded(protocol: int) -> None:
    """A frame of the allowed size cannot ask for a hundred times its bytes."""
    properties = {str(number): "v" for number in range(PROPERTIES_MAX + 1)}
    with pytest.raises(ArgumentsError, match="properties"):
        scan_half(call(protocol, "sendHalfSync", {"message": {"properties": properties}}))
    answers: list[dict[str, Any]] = [{} for _ in range(MESSAGES_MAX + 1)]
    many = {str(number): "" for number in range(MESSAGES_MAX + 1)}
    with pytest.raises(ArgumentsError, match="map of"):
        scan_half(call(protocol, "sendHalfSync", {"message": {"properties": many}}))
    with pytest.raises(ArgumentsError, match="EndTransaction"):
        scan_fetch_checks(call(protocol, "fetchChecks", {"request": {"answers": answers}}))


@protocols
def test_replies_are_written(protocol: int) -> None:
    """Absent fields stay away, and a check has its whole message."""
    half = parse_call(encode_call(protocol, "sendHalfSync", 4, {})[4:])
    assert decode_reply(encode_half_reply(half, 11, "no")[4:]).value == {"code": 11, "msg": "no"}
    stored = encode_half_reply(half, 0, "OK", key="k", transaction_id="id", handle="h", offset=5)
    fields = {"code": 0, "msg": "OK", "key": "k", "transactionId": "id", "handle": "h", "offset": 5}
    assert decode_reply(stored[4:]).value == fields
    fetch = parse_call(encode_call(protocol, "fetchChecks", 5, {})[4:])
    assert decode_reply(encode_checks_reply(fetch, [])[4:]).value == []
    message = {"topic": "t", "partitionId": 2, "body": b"\x00", "properties": {"a": "b"}}
    [row] = decode_reply(encode_checks_reply(fetch, [CheckRow("h", "id", 3, message, 99)])[4:]).value
    expected = {"handle": "h", "transactionId": "id", "checkTimes": 3, "message": message, "bornTimestamp": 99}
    assert row == expected
