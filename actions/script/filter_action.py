"""Filter: let messages through for which a CEL expression is true, and consume the others (R28, D44).

What it consumes is counted (`filtered`). What cannot be decided, because a field is missing or has another type, is an
error with a counter of its own and the outcome that the group chose; DDMQ takes it for filtered (W16).
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Sequence
from typing import Annotated, Any, cast

import msgspec
from pydantic import AfterValidator, Field

from actions.script.cel import CelError, compile_expression, moment
from actions.script.python_action import OnError, on_error_setting, status_of_error
from actions.tombstones import is_tombstone
from conf.base import Model, Reload, setting
from pyddmq.actions import Action, BodyUnprocessable, Failed, Job, MessageUnreadable, Status


def _check_expression(text: str) -> str:
    compile_expression(text)
    return text


class FilterOptions(Model):
    """Options of Filter."""

    expression: Annotated[str, Field(min_length=1), AfterValidator(_check_expression)] = setting(
        ...,
        "A CEL expression that returns true or false; docs/actions-script.md lists its variables.",
        reload=Reload.GENERATION,
    )
    on_error: OnError = on_error_setting()


class FilterAction(Action):
    """Decide by an expression."""

    options_model = FilterOptions
    options: FilterOptions

    def open(self) -> None:
        self._decide = compile_expression(self.options.expression).decide
        names = compile_expression(self.options.expression).wanted
        self._getters = {name: self._getter(name) for name in names}

    def act(self, job: Job) -> Status:
        answer = self.act_many([job])[0]
        if isinstance(answer, Exception):
            raise answer
        return answer

    def act_many(self, jobs: Sequence[Job]) -> Sequence[Status | Exception]:
        answers: list[Status | Exception] = []
        getters, decide = tuple(self._getters.items()), self._decide
        filtered = 0
        for job in jobs:
            try:
                if decide({name: get(job) for name, get in getters}):
                    answers.append(Status.CONTINUE)
                else:
                    answers.append(Status.FINISH)
                    filtered += 1
            except (MessageUnreadable, BodyUnprocessable) as error:
                answers.append(error)
            except Exception as error:
                # What failed is decided again by each retry, for age, attempts and time differ then.
                reason = error if isinstance(error, CelError) else f"{type(error).__name__}: {error}"
                answers.append(status_of_error(self, self.options.on_error, job, Failed(f"{self.name}: {reason}")))
        if filtered:
            self.context.count("filtered", filtered)
        return answers

    def _getter(self, name: str) -> Callable[[Job], Any]:
        context = self.context
        getters: dict[str, Callable[[Job], Any]] = {
            "json": _parsed,
            "key": lambda job: job.message.key or "",
            "tag": lambda job: job.message.tag or "",
            "properties": lambda job: dict(job.message.properties),
            "topic": lambda job: job.topic,
            "group": lambda job: job.group,
            "qid": lambda job: job.qid,
            "queue": lambda job: cast("Any", job).queue_id,
            "offset": lambda job: job.offset,
            "size": lambda job: len(job.body),
            "attempts": lambda job: job.attempts,
            "born": lambda job: moment(job.message.born_ms),
            "age": lambda job: datetime.timedelta(milliseconds=context.wall_ms() - job.message.born_ms),
            "now": lambda job: moment(context.wall_ms()),
        }
        return getters[name]


def _parsed(job: Job) -> Any:
    """Return the parsed body; without Json before it is parsed for the expression alone."""
    data = job.data
    if is_tombstone(job):
        return {}
    if isinstance(data, bytes | bytearray | memoryview):
        data = msgspec.json.decode(data)
    if not isinstance(data, dict):
        raise CelError("the body is not a JSON object")
    return data
