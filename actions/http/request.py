"""What is sent for a message (R54). Pure.

With form fields gathered (FormParams, scripts) the request has a form, as DDMQ's. With none, it has the message itself:
the body's bytes, or the parsed object as JSON; what identifies the message is then in headers.
"""

from __future__ import annotations

import hashlib
import re
from typing import NamedTuple
from urllib.parse import quote, urlencode

import msgspec

from actions.http import signature
from actions.http.options import FORBIDDEN_HEADERS, FORBIDDEN_PREFIXES, AsyncHttpOptions, is_header, is_header_value
from actions.http.reply import printable
from actions.tombstones import is_tombstone
from actions.transform.exact_json import body_of
from pyddmq.actions import Job, Message, Unprocessable

COUNT = "carrera_req_cnt"
HEADERS_PROPERTY = "carrera_headers"
MESSAGE_HEADERS_MAX = 64
HEADERS_BYTES_MAX = 16_384
"""Names and values of all headers that a message brings: receivers refuse longer heads."""
KEY_CHARACTERS_MAX = 1_024
"""Of a key in its header, percent-encoded; a longer one is hashed."""
_FORM = "application/x-www-form-urlencoded"
_TRACEPARENT = re.compile(r"(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}\Z")
_LOOP_ID = re.compile(r"\d{10}-[34]-\d{10}-\d{1,10}-(\d{1,10})-\d{1,10}-\d{1,10}-[0-9a-z-]{36}\Z", re.ASCII)
"""DDMQ's uniqDelayMsgId of a loop; the group is how many deliveries came before (docs/loops.md)."""

Pairs = list[tuple[str, str]]


class HttpRequest(NamedTuple):
    """One request without its URL's front part."""

    query: str
    """What follows the URL's own query; empty for nothing."""
    headers: Pairs
    body: bytes


class Composer:
    """Composes the requests of one subscription.

    Args:
        options: The subscription's.
        static: Headers of every request, secrets read.
        is_intact: As in `actions.transform.exact_json.body_of`.
    """

    def __init__(self, options: AsyncHttpOptions, static: Pairs, *, is_intact: bool = False) -> None:
        self._get = options.http_method == "GET"
        self._is_intact = is_intact
        self._bytes_max = options.request_bytes_max
        self._static = [("User-Agent", "pyddmq"), *static]
        if not any(name.lower() == "accept-encoding" for name, _ in static):
            self._static.append(("Accept-Encoding", "identity"))
        self._static_names = {name.lower() for name, _ in self._static}
        patterns = [pattern.lower() for pattern in options.message_headers]
        self._names = {pattern for pattern in patterns if not pattern.endswith("*")}
        self._prefixes = tuple(pattern[:-1] for pattern in patterns if pattern.endswith("*"))
        self.headers_ignored = 0
        self.traces_ignored = 0

    def compose(self, job: Job) -> HttpRequest:
        """Return the request for a job.

        Raises:
            Unprocessable: A header of it cannot be sent, or it is too large: no attempt can ever be made.
        """
        message = job.message
        gathered = job.outgoing
        headers: Pairs = list(self._static)
        own: Pairs = []
        if HEADERS_PROPERTY in message.properties:
            own += self._from_property(message.properties[HEADERS_PROPERTY])
        for name, value in gathered.headers:
            if not is_header(name) or not is_header_value(value):
                raise Unprocessable(f"header {printable(name)!r} of the push has no valid name or value")
            own.append((name, value))
        size = sum(len(name) + len(value) for name, value in own)
        if size > HEADERS_BYTES_MAX:
            raise Unprocessable(f"the message's headers have {size} bytes; the maximum is {HEADERS_BYTES_MAX}")
        headers += own
        headers += self._trace(message)
        count = str(request_count(job, message))
        if self._get:
            return HttpRequest(urlencode([*gathered.query, *gathered.form, (COUNT, count)]), headers, b"")
        if gathered.form:
            body = urlencode([*gathered.form, (COUNT, count)]).encode()
            headers.append(("Content-Type", _FORM))
        else:
            body = self._message(job, message, headers, count)
        if len(body) > self._bytes_max:
            raise Unprocessable(f"the request has {len(body)} bytes; requestBytesMax is {self._bytes_max}")
        return HttpRequest(urlencode(gathered.query) if gathered.query else "", headers, body)

    def _message(self, job: Job, message: Message, headers: Pairs, count: str) -> bytes:
        """Return the message itself; add the headers that say which it is."""
        data = job.data
        raw = isinstance(data, bytes | bytearray | memoryview)
        tombstone = is_tombstone(job)
        headers += [
            ("Content-Type", "application/octet-stream" if raw else "application/json"),
            ("Pyddmq-Group", job.group),
            ("Pyddmq-Topic", job.topic),
            ("Pyddmq-Qid", job.qid),
            ("Pyddmq-Offset", str(job.offset)),
            ("Pyddmq-Attempt", count),
        ]
        if message.key is not None:
            headers.append(_key_header(message.key))
        if tombstone:
            headers.append(("Pyddmq-Tombstone", "true"))
            return b"" if raw else b"null"
        return body_of(data, job.body, is_intact=self._is_intact)

    def _from_property(self, text: str) -> Pairs:
        """Return those headers of the property that the subscription allows (W62)."""
        if not self._names and not self._prefixes:
            self.headers_ignored += 1
            return []
        try:
            given = msgspec.json.decode(text)
        except (msgspec.DecodeError, RecursionError):
            given = None
        if not isinstance(given, dict) or len(given) > MESSAGE_HEADERS_MAX:
            raise Unprocessable(
                f"the property {HEADERS_PROPERTY} is not a JSON object of at most {MESSAGE_HEADERS_MAX} headers"
            )
        headers = []
        for name, value in given.items():
            if not self._allows(name.lower()):
                self.headers_ignored += 1
                continue
            text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
            if not is_header(name) or not is_header_value(text):
                raise Unprocessable(f"header {printable(name)!r} of {HEADERS_PROPERTY} has no valid name or value")
            headers.append((name, text))
        return headers

    def _allows(self, name: str) -> bool:
        if name in FORBIDDEN_HEADERS or name.startswith(FORBIDDEN_PREFIXES) or name in self._static_names:
            return False
        return name in self._names or (bool(self._prefixes) and name.startswith(self._prefixes))

    def _trace(self, message: Message) -> Pairs:
        """Return W3C's trace context where the message has it; none is made here."""
        parent = message.properties.get("traceparent")
        if parent is None:
            return []
        if not _TRACEPARENT.match(parent):
            self.traces_ignored += 1
            return []
        state = message.properties.get("tracestate", "")
        trace = [("traceparent", parent)]
        if state and len(state) <= 512 and is_header_value(state):
            trace.append(("tracestate", state))
        return trace


def _key_header(key: str) -> tuple[str, str]:
    """Return the header that names a message's key: percent-encoded, or the SHA-256 of its UTF-8 where that is long."""
    if len(key) <= KEY_CHARACTERS_MAX:
        text = quote(key, safe="", errors="surrogatepass")
        if len(text) <= KEY_CHARACTERS_MAX:
            return "Pyddmq-Key", text
    return "Pyddmq-Key-Sha256", hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()


def request_count(job: Job, message: Message) -> int:
    """Return `carrera_req_cnt`: failed attempts so far, or of a loop's message how many deliveries came before (R54).

    W64: any producer can set `from_chronos`; with a key that is no loop's id it means nothing.
    """
    if message.properties.get("from_chronos") is not None and message.key is not None:
        found = _LOOP_ID.match(message.key)
        if found is not None:
            return int(found[1])
    return job.attempts


def signed(
    headers: Pairs, request: HttpRequest, query: str, *, key_id: str, secret: bytes, topic: str, time_s: int
) -> None:
    """Add the headers of the signature to those of a request."""
    value = signature.sign(secret, time_s=time_s, key_id=key_id, topic=topic, query=query, body=request.body)
    own = ((signature.SIGNATURE, value), (signature.TIME, str(time_s)), (signature.KEY_ID, key_id))
    if not any(name == signature.TOPIC for name, _ in headers):
        headers.append((signature.TOPIC, topic))
    headers += own


def joined(own: str, more: str) -> str:
    """Return two queries as one."""
    return f"{own}&{more}" if own and more else own or more
