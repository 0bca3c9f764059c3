"""What the loader has to know of an action in order to check the pipelines that use it."""

from __future__ import annotations

from dataclasses import dataclass

from pydantic import BaseModel

from conf.base import Model, Reload, setting
from conf.models import DAY_MS


class ActionError(Exception):
    """An action cannot be found or made; the text says what to do. Raised by the mapping that the loader is handed."""


class CallOptions(Model):
    """What every async or blocking action takes among its options, beside its own."""

    time_limit: int | None = setting(
        None,
        "Time limit of one call in ms. Then an async call is cancelled and counts as an error; a blocking "
        "call is shown as stuck until it returns (D45).",
        reload=Reload.GENERATION,
        absent="the action's own limit, or the subscription's timeout",
        ge=1,
        le=DAY_MS,
    )

    @classmethod
    def names(cls) -> frozenset[str]:
        """Keys in YAML."""
        return frozenset(field.alias or name for name, field in cls.model_fields.items())


class BlockingOptions(CallOptions):
    """Likewise of every blocking one."""

    process: bool = setting(
        False,
        "Whether its calls run in separate processes, which are killed at the time limit.",
        reload=Reload.GENERATION,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionSpec:
    """One action: what it needs of its place in the pipeline, and the model of its options.

    Attributes:
        name: The name in `actions`.
        needs_json: It works on the parsed body, so an action that provides it must stand before.
        provides_json: After it, `job.data` is the parsed body.
        may_be_last: It can end a pipeline: it hands the message out or finishes it itself.
        is_gate: Order per key is kept from here on (`Async`); at most one in a pipeline.
        stands_alone: It is the whole pipeline, or no part of one (`LowLevel`).
        answers_at_once: It neither awaits nor blocks.
        call_options: Options that it has by the way it is called; None where it answers at once.
        options_model: Checks `options: {<name>: {...}}`; None for an action without options.
    """

    name: str
    needs_json: bool = False
    provides_json: bool = False
    may_be_last: bool = False
    is_gate: bool = False
    stands_alone: bool = False
    answers_at_once: bool = True
    call_options: type[CallOptions] | None = None
    options_model: type[BaseModel] | None = None
