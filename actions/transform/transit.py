"""Transit: make a new body out of parts of the parsed one (R23).

Each field names a target path and the source path of its value. Values are read from the body as it came to the
action; `$` as a target names the part that becomes the new body, into which the other fields are then set. Without it
they are set into an empty object.

In DDMQ the new body and the old one share their objects, so that setting a field may change what a later one reads.
Here an object that is not the action's own is copied before it is changed.
"""

from __future__ import annotations

import itertools
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field

from conf.base import Model, Reload, setting
from conf.json_path import MISSING, Steps, compile_getter, full_path, parse_path, plain_steps
from pyddmq.actions import Action, Context, Job, Status, Unprocessable

# What becomes of a message that lacks a field which a transforming action is to take from it (W23).


OnMissing = Literal["fail", "skip", "null"]


def _check_path(text: str) -> str:
    parse_path(text)
    return full_path(text)


JsonPathText = Annotated[str, AfterValidator(_check_path)]
"""A JSON path of the configuration; comes back in its full spelling."""


def missing_setting() -> Any:
    """Make the option `missing`."""
    return setting(
        "skip",
        "For a field that is missing or null: `skip` omits it, `null` writes null, `fail` dead-letters the "
        "message, since no retry can add the field. Counted in every case.",
        reload=Reload.GENERATION,
    )


def found(value: Any, name: str, path: str, on_missing: OnMissing, context: Context) -> Any:
    """Return a value that a getter found, None where null is to be written, or MISSING where nothing is.

    Raises:
        Unprocessable: It is missing, and that is to be a failure; the text names field and path.
    """
    if value is not MISSING and value is not None:
        return value
    context.count("missing")
    if on_missing == "fail":
        raise Unprocessable(f"{name}: the body has nothing at {path}")
    return None if on_missing == "null" else MISSING


INDEX_MAX = 999
"""Of a list that a target path names: a higher one would fill memory with nulls."""


def _check_target(text: str) -> str:
    steps = plain_steps(full_path(text)) if text == text.strip() and text else None
    if steps is None:
        raise ValueError(f"{text!r} is not a valid target path; write names and indexes, such as $.customer.id")
    if any(isinstance(step, int) and step > INDEX_MAX for step in steps):
        raise ValueError(f"{text!r} has an index above {INDEX_MAX}; use a lower one")
    if steps and isinstance(steps[0], int):
        raise ValueError(f"{text!r} starts with an index, and the body is an object; begin with a name")
    return full_path(text)


TargetPath = Annotated[str, AfterValidator(_check_target)]


class TransitOptions(Model):
    """Options of Transit."""

    fields: Annotated[dict[TargetPath, JsonPathText], Field(min_length=1, max_length=1000)] = setting(
        ...,
        "Target path of each field in the new body, and the JSON path of its value in the old one; the "
        "target `$` selects the part that the new body is based on. DDMQ's `transit`.",
        reload=Reload.GENERATION,
    )
    missing: OnMissing = missing_setting()


class TransitAction(Action):
    """Replace `job.data` by a new object."""

    needs_json = True
    provides_json = True
    changes_body = True
    writes_numbers = True
    options_model = TransitOptions
    options: TransitOptions

    def open(self) -> None:
        fields = self.options.fields
        self._root_path = fields.get("$")
        self._root = None if self._root_path is None else compile_getter(self._root_path)
        self._fields = [
            (target, path, plain_steps(target) or (), compile_getter(path))
            for target, path in fields.items()
            if target != "$"
        ]

    def act(self, job: Job) -> Status:
        old = job.data
        if old is None:
            return Status.CONTINUE
        new: dict[str, Any] = {}
        if self._root is not None:
            root = self._root(old)
            if not isinstance(root, dict):
                # R23: in DDMQ it must be an object, too, and a null dereference is what says so (W23).
                what = "nothing" if root is MISSING else f"no object, but {_kind(root)}"
                self.context.count("no_root")
                raise Unprocessable(f"$: the body has {what} at {self._root_path}; the new body needs an object there")
            new = dict(root)
        own = {id(new)}
        for target, path, steps, get in self._fields:
            value = found(get(old), target, path, self.options.missing, self.context)
            if value is not MISSING:
                _set(new, steps, value, own, target)
        job.data = new
        return Status.CONTINUE


def _set(root: dict[str, Any], steps: Steps, value: Any, own: set[int], target: str) -> None:
    """Set a value, making the objects and lists on the way; those that are not in `own` are copied first.

    Raises:
        Unprocessable: Something on the way is a value of another kind.
    """
    at: Any = root
    for step, following in itertools.pairwise(steps):
        below = _get(at, step)
        wanted = list if isinstance(following, int) else dict
        if below is None:
            below = wanted()
        elif not isinstance(below, wanted):
            # Said of what is there, for the target is the configuration's and may fit other messages.
            raise Unprocessable(f"{target}: {step!r} is already {_kind(below)} and cannot contain {following!r}")
        elif id(below) not in own:
            below = below.copy()
        own.add(id(below))
        _put(at, step, below)
        at = below
    _put(at, steps[-1], value)


def _get(at: Any, step: str | int) -> Any:
    """Return what is at a step, None where nothing does."""
    if isinstance(step, str):
        return at.get(step)
    return at[step] if step < len(at) else None


def _put(at: Any, step: str | int, value: Any) -> None:
    """Set a step, filling a list that is too short with nulls."""
    if isinstance(step, int):
        at.extend([None] * (step + 1 - len(at)))
    at[step] = value


def _kind(value: Any) -> str:
    names = {dict: "an object", list: "a list", str: "a text", bool: "true or false", type(None): "null"}
    return names.get(type(value), "a number")
