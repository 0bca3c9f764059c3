"""What the loader has to know of an action in order to check the pipelines that use it."""

from __future__ import annotations

from dataclasses import dataclass

from pydantic import BaseModel


class ActionError(Exception):
    """An action cannot be found or made; the text says what to do. Raised by the mapping that the loader is handed."""


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
        options_model: Checks `options: {<name>: {...}}`; None for an action without options.
    """

    name: str
    needs_json: bool = False
    provides_json: bool = False
    may_be_last: bool = False
    is_gate: bool = False
    stands_alone: bool = False
    options_model: type[BaseModel] | None = None
