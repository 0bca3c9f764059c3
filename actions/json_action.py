"""Json: parse the body into an object (R22), strictly.

DDMQ's lenient forms (unquoted names, single quotes) are not offered. What cannot be an object (empty, null,
malformed, a list, a text or a number) is dead-lettered at once with the reason; nothing is consumed silently (D17,
W17). A delete (a null value in Kafka) passes, with None as `job.data`. The body that a client gets stays the original
one (R29), unless its group asks for the transformed one.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from actions.tombstones import is_tombstone
from actions.transform.exact_json import decode_exact
from pyddmq.actions import Action, Job, MessageUnreadable, Status, Unprocessable

_CONTINUE = Status.CONTINUE
_NAMES = {type(None): "null", list: "a list", str: "a text", bool: "true or false", int: "a number", float: "a number"}


class JsonAction(Action):
    """Replace `job.data` by the parsed body: a dict."""

    provides_json = True
    exact = False
    """Numbers keep their text, for an action that writes them again; set by the registry before `open`."""

    def __init__(self) -> None:
        self._decode = msgspec.json.Decoder().decode

    def open(self) -> None:
        if self.exact:
            self._decode = decode_exact

    def act(self, job: Job) -> Status:
        body = job.body
        job.data = self.parse(body) if len(body) or not is_tombstone(job) else None
        return Status.CONTINUE

    def act_many(self, jobs: Sequence[Job]) -> Sequence[Status | Exception]:
        answers: list[Status | Exception] = []
        parse = self.parse
        for job in jobs:
            try:
                body = job.body
                job.data = parse(body) if len(body) or not is_tombstone(job) else None
                answers.append(_CONTINUE)
            except (Unprocessable, MessageUnreadable) as error:
                answers.append(error)
        return answers

    def parse(self, body: bytes | memoryview) -> dict[str, object]:
        """Parse one body.

        Raises:
            Unprocessable: It is not a JSON object; the text says what it is instead.
        """
        try:
            try:
                data = self._decode(body)
            except msgspec.ValidationError:
                # A number that Python's float cannot hold, such as 1e400.
                data = decode_exact(body)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise Unprocessable(f"body is not JSON: {error}" if bytes(body).strip() else "body is empty") from error
        if type(data) is not dict:
            raise Unprocessable(f"body is {_NAMES.get(type(data), 'no object')}, not a JSON object")
        return data
