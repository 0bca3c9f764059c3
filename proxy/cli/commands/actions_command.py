"""`pyddmq actions [list] | actions try`: which actions there are, and what a pipeline makes of a message."""

from __future__ import annotations

import contextlib
from pathlib import Path
from types import UnionType
from typing import TYPE_CHECKING, Annotated, Any, Literal, Union, get_args, get_origin

import typer

from proxy.cli.commands.send_command import pairs_of
from proxy.cli.errors import CliError
from proxy.cli.options import AsJson
from proxy.cli.output import body_fields, print_json, print_line
from proxy.operate.text import printable
from proxy.process.exit_codes import ExitCode

if TYPE_CHECKING:
    from pydantic import BaseModel

    from conf.actions import ActionSpec
    from proxy.operate.action_trial import Step
    from pyddmq.actions import Action, Outgoing


def list_actions(
    *,
    name: Annotated[str | None, typer.Argument(help="Only this action; a dotted path is accepted.")] = None,
    as_json: AsJson = False,
) -> int:
    """List the actions for a configuration: allowed positions, options, requirements."""
    from actions.registry import ActionError, Registry

    registry = Registry()
    found: list[dict[str, Any]] = []
    for each in [name] if name is not None else registry:
        try:
            cls, spec = registry.find(each), registry[each]
        except ActionError as error:
            if name is not None:
                raise CliError(str(error), ExitCode.NOT_FOUND) from error
            found.append({"name": each, "does": "", "place": "", "problem": str(error), "options": []})
            continue
        text = (cls.__doc__ or "").strip().partition("\n")[0]
        place = _place(spec, cls)
        found.append({"name": each, "does": text, "place": place, "problem": None, "options": _options(spec)})
    if as_json:
        return print_json({"actions": found})
    for action in found:
        print_line(f"{action['name']}: {action['does']}")
        print_line(f"    {action['problem'] or action['place']}")
        for option in action["options"]:
            default = "required" if option["required"] else f"default {option['default']}"
            print_line(f"    {option['name']} ({option['type']}, {default}): {option['description']}")
    return ExitCode.OK


def try_actions(
    *,
    config: Annotated[Path, typer.Argument(help="Configuration file.", readable=False)],
    group: Annotated[str, typer.Argument(help="The group.")],
    topic: Annotated[str, typer.Argument(help="A topic of the group.")],
    body: Annotated[str, typer.Option(help="Body of the message.")] = "",
    key: Annotated[str | None, typer.Option(help="Key of the message.")] = None,
    tag: Annotated[str | None, typer.Option(help="Tag of the message.")] = None,
    properties: Annotated[
        list[str] | None,
        typer.Option("--property", metavar="NAME=VALUE", help="A property of the message; repeatable."),
    ] = None,
    really: Annotated[
        bool, typer.Option("--run", help="Also run the last action and all actions that call other servers.")
    ] = False,
    as_json: AsJson = False,
) -> int:
    """Run a message through the actions of a group's topic, without a node, and show each step."""
    import asyncio

    from actions.registry import ActionError
    from conf.problems import ConfigError
    from proxy.operate.action_trial import TrialMissing, new_registry, run_trial, subscription_of
    from pyddmq.actions import Message
    from upstream.calls.user_code import described

    registry = new_registry()
    try:
        text = config.read_text(encoding="utf-8")
        subscription = subscription_of(text, group, topic, registry, file=str(config))
    except (OSError, UnicodeDecodeError) as error:
        raise CliError(f"{config} cannot be read: {error}", ExitCode.CONFIG_INVALID) from error
    except ConfigError as error:
        raise CliError(str(error), ExitCode.CONFIG_INVALID) from error
    except TrialMissing as error:
        raise CliError(str(error), ExitCode.NOT_FOUND) from error
    message = Message(key, tag, body.encode("utf-8", "surrogateescape"), dict(pairs_of(properties or ())), 0)
    try:
        trial = asyncio.run(
            run_trial(subscription, message, group=group, registry=registry, run=really, run_last=really)
        )
    except ActionError as error:
        raise CliError(str(error), ExitCode.CONFIG_INVALID) from error
    except Exception as error:
        raise CliError(f"an action cannot be opened or closed: {described(error)}", ExitCode.CHECK_FAILED) from error
    if as_json:
        return print_json({"orderKey": trial.order_key, "steps": [_fields(step) for step in trial.steps]})
    for number, step in enumerate(trial.steps, 1):
        _print_step(number, step)
    print_line(f"order key: {trial.order_key if trial.order_key is not None else '(unordered)'}")
    if trial.last.answer is None and not really and trial.last.meaning.startswith("not run"):
        print_line("pass --run to run it")
    return ExitCode.OK


def _place(spec: ActionSpec, action: type[Action]) -> str:
    if spec.stands_alone:
        return "must be the only action"
    if spec.is_gate:
        return "at most once; the actions after it keep the order by key"
    facts = ["may be last" if spec.may_be_last else "not last"]
    if spec.needs_json:
        facts.append("after Json")
    if not spec.answers_at_once:
        facts.append("after Async, where orderKey is a JSON path")
    needed = getattr(action, "needs_package", None)
    if needed is not None:
        facts.append(f"needs the extra {needed[1]}")
    return ", ".join(facts)


def _options(spec: ActionSpec) -> list[dict[str, Any]]:
    models: list[type[BaseModel] | None] = [spec.options_model, spec.call_options]
    return [
        {
            "name": field.alias or name,
            "type": _type_text(field.annotation),
            "required": field.is_required(),
            "default": None if field.is_required() else _plain(field.get_default(call_default_factory=True)),
            "description": field.description or "",
        }
        for model in models
        if model is not None
        for name, field in model.model_fields.items()
    ]


def _type_text(annotation: Any) -> str:
    """Return a type as people write it, without what only checks it."""
    origin, parts = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _type_text(parts[0])
    if origin is Literal:
        return " or ".join(repr(part) for part in parts)
    if origin in (Union, UnionType):
        return " or ".join("null" if part is type(None) else _type_text(part) for part in parts)
    name = getattr(origin or annotation, "__name__", str(annotation))
    return f"{name} of {', '.join(_type_text(part) for part in parts)}" if parts else name


def _print_step(number: int, step: Step) -> None:
    answer = "" if step.answer is None else f"{getattr(step.answer, 'name', type(step.answer).__name__)}: "
    print_line(f"{number}. {step.action}: {answer}{printable(step.meaning)}")
    for line in step.traceback.splitlines():
        print_line(f"    {printable(line)}")
    print_line(f"    data: {_shown(step.data)}")
    for name, value in _gathered(step.outgoing).items():
        print_line(f"    {name}: {_shown(value)}")
    for line in step.preview:
        print_line(f"    would send: {printable(line)}")
    for event in step.events:
        print_line(f"    counted {event.name}: {event.amount}" if event.amount else f"    noted {event.name}")


def _gathered(outgoing: Outgoing) -> dict[str, Any]:
    parts = {name: getattr(outgoing, name) for name in ("query", "form", "headers", "commands")}
    return {name: value for name, value in parts.items() if value}


def _shown(value: Any) -> str:
    if isinstance(value, bytes | bytearray | memoryview):
        with contextlib.suppress(UnicodeDecodeError):
            return printable(bytes(value).decode())
    return printable(repr(value))


def _fields(step: Step) -> dict[str, Any]:
    answer = None if step.answer is None else getattr(step.answer, "name", type(step.answer).__name__)
    data = body_fields(step.data) if isinstance(step.data, bytes) else {"data": _plain(step.data)}
    return {
        "action": step.action,
        "answer": answer,
        "meaning": step.meaning,
        "traceback": step.traceback,
        **data,
        "outgoing": {name: _plain(value) for name, value in _gathered(step.outgoing).items()},
        "preview": [*step.preview],
        "events": [{"name": each.name, "amount": each.amount} for each in step.events],
    }


def _plain(value: Any) -> Any:
    """Return a value as JSON has it; what JSON has not, as Python shows it."""
    if isinstance(value, dict):
        return {str(name): _plain(each) for name, each in value.items()}
    if isinstance(value, list | tuple) and type(value) in (list, tuple):
        return [_plain(each) for each in value]
    if hasattr(value, "model_dump"):  # a model of pydantic, which is not imported for this alone
        return _plain(value.model_dump(by_alias=True))
    return value if isinstance(value, str | int | float | bool | None) else repr(value)
