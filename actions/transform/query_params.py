"""QueryParams: take values of the parsed body as parameters of the URL that the message is pushed to (R24)."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from actions.transform.exact_json import text_of
from actions.transform.transit import JsonPathText, OnMissing, found, missing_setting
from conf.base import Model, Reload, setting
from conf.json_path import MISSING, compile_getter
from pyddmq.actions import Action, Job, Status


class QueryParamsOptions(Model):
    """Options of QueryParams."""

    fields: Annotated[dict[Annotated[str, Field(min_length=1)], JsonPathText], Field(min_length=1, max_length=1000)] = (
        setting(
            ...,
            "Name of each parameter, and the JSON path of its value. A text is sent unchanged, all other "
            "values as JSON. DDMQ's `queryParams`.",
            reload=Reload.GENERATION,
        )
    )
    missing: OnMissing = missing_setting()


class QueryParamsAction(Action):
    """Add to `job.outgoing.query`, in the order of the configuration."""

    needs_json = True
    writes_numbers = True
    options_model = QueryParamsOptions
    options: QueryParamsOptions

    def open(self) -> None:
        self._fields = [(name, path, compile_getter(path)) for name, path in self.options.fields.items()]

    def act(self, job: Job) -> Status:
        data = job.data
        if data is None:
            return Status.CONTINUE
        # Together, so that a message which fails half-way leaves nothing behind.
        gathered = []
        for name, path, get in self._fields:
            value = found(get(data), name, path, self.options.missing, self.context)
            if value is not MISSING:
                gathered.append((name, text_of(value)))
        job.outgoing.query.extend(gathered)
        return Status.CONTINUE
