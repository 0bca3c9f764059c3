"""FormParams and FormParams2: put body and context of a message into the form that it is pushed with (R25-R27).

FormParams makes one field `params` of the whole body. FormParams2 makes a field of each top-level entry of a parsed
body; of one that is raw bytes, `params` as FormParams does. Both add the context that `appendContext` asks for,
whatever the body is (W22).
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable, Iterator, Sequence
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field

from actions.tombstones import is_tombstone
from actions.transform.exact_json import body_of, json_of, text_of
from conf.base import Model, Reload, setting
from conf.secrets import Secret
from pyddmq.actions import Action, Job, Status, Unprocessable

Pair = tuple[str, str]
Appended = Literal["TOPIC", "GROUP", "OFFSET", "QID", "SOURCE", "MSG_KEY", "TOKEN", "PROPERTIES"]

SOURCE = "RMQ"
"""What DDMQ calls a broker of RocketMQ's kind, as the embedded one is; the other value is KAFKA."""
PARAMS = "params"
ENCODING = "params_encoding"


def _none_of_empty(value: object) -> object:
    """An empty text is DDMQ's default."""
    return None if value == "" else value


class FormParamsOptions(Model):
    """Options of FormParams and FormParams2."""

    append_context: Annotated[list[Appended], Field(max_length=8)] = setting(
        [],
        "Fields of the message besides its body: TOPIC, GROUP, OFFSET, QID, SOURCE, MSG_KEY, TOKEN, "
        "PROPERTIES (R27). DDMQ's `appendContext`.",
        reload=Reload.GENERATION,
    )
    token_key: Annotated[Secret | None, BeforeValidator(_none_of_empty)] = setting(
        None,
        "Secret of TOKEN, the hex MD5 of key and secret, as `{file: PATH}` or `{env: NAME}`. Anyone who "
        "has seen a token can send it again with another body (W63). DDMQ's `tokenKey`, which contains the "
        "secret itself.",
        reload=Reload.GENERATION,
        absent="none: only the MD5 of the key",
    )
    binary: Literal["fail", "base64"] = setting(
        "fail",
        "A form is text. A body that is not UTF-8 is dead-lettered (`fail`), or sent as base64 with the "
        "field `params_encoding`.",
        reload=Reload.GENERATION,
    )


class FormParamsAction(Action):
    """Add the body as `params`, and the context, to `job.outgoing.form`."""

    writes_numbers = True
    is_intact = False
    options_model = FormParamsOptions
    options: FormParamsOptions

    def open(self) -> None:
        """Prepare; raises SecretUnreadable where a token is wanted and its secret is not there."""
        place = self.options.token_key if "TOKEN" in self.options.append_context else None
        self._append = appender(self.options.append_context, place.read() if place is not None else "")

    def act(self, job: Job) -> Status:
        form = [*self.fields(job), *self._append(job)]
        job.outgoing.form.extend(form)
        return Status.CONTINUE

    def fields(self, job: Job) -> Iterator[Pair]:
        """Yield the fields that the body becomes.

        Raises:
            Unprocessable: It is not text, and that is to be a failure.
        """
        if is_tombstone(job):
            yield PARAMS, "null"
            return
        data = body_of(job.data, job.body, is_intact=self.is_intact)
        try:
            yield PARAMS, data.decode()
        except UnicodeDecodeError as error:
            self.context.count("binary")
            if self.options.binary == "fail":
                raise Unprocessable(f"body is not UTF-8 and cannot be a form value: {error}") from error
            yield PARAMS, base64.b64encode(data).decode()
            yield ENCODING, "base64"


class FormParams2Action(FormParamsAction):
    """Add each top-level entry of the body, and the context, to `job.outgoing.form`."""

    def fields(self, job: Job) -> Iterator[Pair]:
        data = job.data
        if not isinstance(data, dict):
            yield from super().fields(job)
            return
        for name, value in data.items():
            yield str(name), text_of(value)


def appender(wanted: Sequence[Appended], token_key: str) -> Callable[[Job], list[Pair]]:
    """Make the function that returns the context of a message, in the order of `wanted` (R27).

    A message without a key counts as one with the key `null`, as in DDMQ, so that a receiver can check its token.
    """

    def append(job: Job) -> list[Pair]:
        pairs: dict[str, str] = {}
        for each in wanted:
            if each == "TOPIC":
                pairs["carrera_topic"] = job.topic
            elif each == "GROUP":
                pairs["carrera_group"] = job.group
            elif each == "OFFSET":
                pairs["carrera_offset"] = str(job.offset)
            elif each == "SOURCE":
                pairs["carrera_source"] = SOURCE
            elif each == "QID":
                pairs["carrera_qid"] = job.qid
            elif each == "PROPERTIES":
                pairs["carrera_properties"] = json_of(dict(job.message.properties) or None).decode()
            else:
                key = job.message.key
                text = "null" if key is None else key
                if each == "TOKEN":
                    digest = hashlib.md5(f"{text}{token_key}".encode(), usedforsecurity=False)
                    pairs["carrera_token"] = digest.hexdigest()
                pairs["carrera_msg_key"] = text
        return list(pairs.items())

    return append if wanted else lambda job: []
