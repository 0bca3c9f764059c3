"""What is sent for a message (R54), and what a message may not say of it (W62, W64)."""

from __future__ import annotations

import hashlib
import json
from typing import Any, cast

import pytest

from actions.http.options import AsyncHttpOptions
from actions.http.request import Composer, HttpRequest
from pyddmq.actions import Job, Unprocessable
from tests.push_tools import HandHistory, HandJob

LOOP = "1700000000-3-1800000000-10-4-60-0-5a0d3b1e-0000-4000-8000-00000000abcd"


def composer(**options: Any) -> Composer:
    """Of a subscription with these options, in YAML's names."""
    return Composer(
        AsyncHttpOptions.model_validate({"urls": ["http://a/"], **options}), [("Authorization", "Bearer x")]
    )


def compose(job: HandJob, **options: Any) -> HttpRequest:
    """The request for a job."""
    return composer(**options).compose(cast("Job", job))


def test_form_has_its_fields_in_order_and_the_count_last() -> None:
    """As DDMQ's POST."""
    request = compose(HandJob().form(("params", "a b&c=\u00e9"), ("x", "")))
    assert request.body == b"params=a+b%26c%3D%C3%A9&x=&carrera_req_cnt=0"
    assert ("Content-Type", "application/x-www-form-urlencoded") in request.headers
    assert request.query == ""


def test_get_has_the_form_in_its_query() -> None:
    """Behind the query's own parameters; DDMQ sends a body with its GET, which few receivers read."""
    job = HandJob().form(("params", "1"))
    job.outgoing.query.append(("q", "z"))
    request = compose(job, httpMethod="get")
    assert request == HttpRequest("q=z&params=1&carrera_req_cnt=0", request.headers, b"")


@pytest.mark.parametrize(
    ("data", "kind", "body"),
    [
        (b"\xff\x00raw", "application/octet-stream", b"\xff\x00raw"),
        ({"a": "\u00e9"}, "application/json", '{"a":"\u00e9"}'.encode()),
    ],
)
def test_without_a_form_the_message_itself_is_sent(data: Any, kind: str, body: bytes) -> None:
    """Byte for byte, or the object as JSON; headers say which message it is."""
    job = HandJob(data=data, key="k/\u00e9", history=HandHistory(fails=1, errors=2))
    request = compose(job)
    assert request.body == body
    headers = dict(request.headers)
    assert headers["Content-Type"] == kind
    assert {name: headers[f"Pyddmq-{name}"] for name in ("Group", "Topic", "Qid", "Offset", "Attempt", "Key")} == {
        "Group": "g",
        "Topic": "t",
        "Qid": "c_b_0",
        "Offset": "7",
        "Attempt": "3",
        "Key": "k%2F%C3%A9",
    }


@pytest.mark.parametrize(
    ("key", "properties", "count"),
    [
        (LOOP, {"from_chronos": "true"}, "4"),
        (LOOP, {}, "0"),
        ("order-1", {"from_chronos": "true"}, "0"),
        (None, {"from_chronos": "true"}, "0"),
        ("1-2-3", {"from_chronos": ""}, "0"),
        (LOOP.replace("-3-", "-2-", 1), {"from_chronos": "true"}, "0"),
        ("-" * 5000, {"from_chronos": "true"}, "0"),
    ],
)
def test_request_count_of_a_loop_is_in_its_key_and_any_other_key_is_harmless(
    key: str | None, properties: dict[str, str], count: str
) -> None:
    """W64: any producer can set `from_chronos`."""
    request = compose(HandJob(key=key, properties=properties).form(("a", "1")))
    assert request.body == f"a=1&carrera_req_cnt={count}".encode()


def test_headers_of_a_message_are_off_until_they_are_named() -> None:
    """W62: with none named nothing of the property is sent, and it is counted."""
    made = composer()
    request = made.compose(cast("Job", HandJob(properties={"carrera_headers": '{"X-Shop": "1"}'})))
    assert "X-Shop" not in dict(request.headers)
    assert made.headers_ignored == 1


def test_only_named_headers_of_a_message_are_sent() -> None:
    """By name or beginning, in any case; never those that frame the request or that the configuration sets."""
    given = {
        "X-Shop-Id": "1",
        "x-trace": "2",
        "Other": "3",
        "Host": "evil",
        "Authorization": "Basic evil",
        "Content-Length": "0",
        "Transfer-Encoding": "chunked",
        "Pyddmq-Topic": "evil",
        "X-Forwarded-For": "evil",
    }
    job = HandJob(properties={"carrera_headers": json.dumps(given)})
    made = composer(messageHeaders=["X-Shop-*", "X-Trace"])
    request = made.compose(cast("Job", job))
    sent = [(name, value) for name, value in request.headers if name in given]
    assert sent == [("Authorization", "Bearer x"), ("X-Shop-Id", "1"), ("x-trace", "2"), ("Pyddmq-Topic", "t")]
    assert made.headers_ignored == 7


@pytest.mark.parametrize(
    "value",
    [
        "no json",
        "[]",
        "{",
        '{"X-A": "1\\r\\nX-Evil: 2"}',
        '{"X-A": "\\u00e9"}',
        '{"X-A": " 1"}',
        '{"X-A\\n": "1"}',
        "[" * 9000,
    ],
)
def test_headers_of_a_message_that_cannot_be_sent_dead_letter_it(value: str) -> None:
    """No attempt can ever send them."""
    with pytest.raises(Unprocessable):
        compose(HandJob(properties={"carrera_headers": value}), messageHeaders=["X-*"])


@pytest.mark.parametrize(("name", "value"), [("X-A", "1\r\nX-Evil: 2"), ("X A", "1"), ("X-A", "1\0"), ("", "1")])
def test_gathered_header_with_a_line_end_dead_letters_the_message(name: str, value: str) -> None:
    """A script may have taken it from the body."""
    job = HandJob()
    job.outgoing.headers.append((name, value))
    with pytest.raises(Unprocessable, match="header"):
        compose(job)


TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@pytest.mark.parametrize(
    ("properties", "sent"),
    [
        ({"traceparent": TRACE}, {"traceparent": TRACE}),
        ({"traceparent": TRACE, "tracestate": "a=1,b=2"}, {"traceparent": TRACE, "tracestate": "a=1,b=2"}),
        ({"traceparent": TRACE, "tracestate": "a\nb"}, {"traceparent": TRACE}),
        ({"tracestate": "a=1"}, {}),
        ({"traceparent": TRACE.upper()}, {}),
        ({"traceparent": "ff" + TRACE[2:]}, {}),
        ({"traceparent": TRACE + "\r\nX: 1"}, {}),
        ({"traceparent": "00-" + "0" * 32 + TRACE[35:]}, {}),
        ({}, {}),
    ],
)
def test_trace_context_is_passed_on_where_it_is_one(properties: dict[str, str], sent: dict[str, str]) -> None:
    """W3C's; none is made."""
    headers = {name: value for name, value in compose(HandJob(properties=properties)).headers if "trace" in name}
    assert headers == sent


def test_request_that_is_too_large_is_dead_lettered() -> None:
    """RequestBytesMax."""
    with pytest.raises(Unprocessable, match="1025 bytes; requestBytesMax is 1024"):
        compose(HandJob(data=b"x" * 1025), requestBytesMax=1024)


@pytest.mark.parametrize(
    ("key", "name"),
    [("k" * 1_024, "Pyddmq-Key"), ("k" * 1_025, "Pyddmq-Key-Sha256"), ("\u6f22" * 113, "Pyddmq-Key"),
     ("\u6f22" * 3_000, "Pyddmq-Key-Sha256"), ("\ud800" * 2_000, "Pyddmq-Key-Sha256"), ("\ud800", "Pyddmq-Key")],
)  # fmt: skip
def test_header_of_a_long_key_is_its_sum(key: str, name: str) -> None:
    """Receivers refuse headers above 8 KiB, and a key may be far longer when it is percent-encoded."""
    headers = dict(compose(HandJob(key=key)).headers)

    [found] = [each for each in headers if each.startswith("Pyddmq-Key")]
    assert found == name
    assert len(headers[found]) <= 1_024
    if name == "Pyddmq-Key-Sha256":
        assert headers[found] == hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()


def test_message_whose_own_headers_no_receiver_takes_is_unprocessable() -> None:
    """Those of its property and those that actions gathered count together."""
    given = json.dumps({f"X-{n}": "v" * 4_000 for n in range(3)})
    job = HandJob(properties={"carrera_headers": given})
    assert compose(job, messageHeaders=["X-*"]).headers
    job.outgoing.headers.append(("Y", "v" * 5_000))
    with pytest.raises(Unprocessable, match="the maximum is 16384"):
        compose(job, messageHeaders=["X-*"])
