"""How actions are found by name, what the configuration is told of them, and how they are made."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from typing import Any

import pytest
from pydantic import BaseModel

from actions.processes import ProcessAction
from actions.registry import BUILT_IN, ActionError, Registry
from conf.loader import loads
from conf.problems import ConfigError
from pyddmq.actions import Action, Job, Status, action
from tests.unit.upstream_world import World


class Options(BaseModel):
    """Options of `WithOptions`."""

    limit: int = 3


class WithOptions(Action):
    """Takes options."""

    options_model = Options


class Waits(Action):
    """Awaits."""

    may_be_last = True
    options_model = Options

    async def act(self, job: Job) -> Status:
        """Finish it."""
        return Status.FINISH


class Blocks(Action):
    """Blocks."""

    blocking = True
    may_be_last = True
    time_limit_ms = 700

    def act_many(self, jobs: Sequence[Job]) -> Sequence[Status | Exception]:
        """Finish them."""
        return [Status.FINISH] * len(jobs)


class Both(Waits):
    """Contradicts itself."""

    blocking = True


def consume(job: Job) -> None:
    """A function that may not be last."""


@action(may_be_last=True, needs_json=True, blocking=True, time_limit_ms=50)
def report(job: Job, options: Options) -> Status:
    """A function that says more."""
    return Status.FINISH if options.limit else Status.CONTINUE


def wrong(job: Job, options: int) -> None:
    """Its options are no model."""


def many(job: Job, options: Options, more: int) -> None:
    """Takes too much."""


def test_registry_finds_built_in_entry_point_and_dotted_names() -> None:
    """All three ways lead to a class and its spec."""
    registry = Registry()
    assert registry["Json"].provides_json
    assert registry["Async"].is_gate
    assert registry["PullServer"].may_be_last
    assert registry.find(f"{__name__}:WithOptions") is WithOptions
    assert f"{__name__}:WithOptions" in registry
    assert set(registry) >= {"Json", "Async", "NonBlockAsync", "PullServer"}
    assert "Nope" not in registry
    with pytest.raises(KeyError):
        registry["Nope"]


@pytest.mark.parametrize(
    ("name", "match"),
    [
        ("Jsn", "did you mean 'Json'"),
        ("no.such.module:Thing", r"cannot be imported \(ModuleNotFoundError.*PYTHONPATH"),
        ("actions:Thing", r"cannot be imported .*actions is a module of pyddmq itself; choose another name"),
        (f"{__name__}:Missing", r"cannot be imported \(AttributeError"),
        (f"{__name__}:Options", "derived from pyddmq.actions.Action, or a function"),
        (f"{__name__}:Both", "async def and blocking.*choose one"),
        (f"{__name__}:wrong", "annotate options of wrong with a pydantic model"),
        (f"{__name__}:many", "many has 3 parameters; use one for the job"),
    ],
)
def test_registry_says_what_is_wrong_with_a_name(name: str, match: str) -> None:
    """Unknown names suggest the nearest, imports name their error, other classes are refused."""
    with pytest.raises(ActionError, match=match):
        Registry().find(name)


def test_registry_checks_options() -> None:
    """Options are checked by the action's model and handed to it; an action without a model takes none."""
    name = f"{__name__}:WithOptions"
    world = World()

    def make(options: dict[str, Any], *actions: str) -> list[Action]:
        config = world.config({"topic": "t", "actions": list(actions), "options": options})
        return Registry().make(config.topics[0])

    action = make({name: {"limit": 5}}, name, "PullServer")[0]
    assert action.options == Options(limit=5)
    with pytest.raises(ActionError, match="cannot be created"):
        make({name: {"limit": "many"}}, name)
    with pytest.raises(ActionError, match="has no options"):
        make({"Json": {"lenient": True}}, "Json", "PullServer")


def make(actions: Sequence[str], options: dict[str, Any]) -> list[Action]:
    """Make the actions of a subscription."""
    config = World().config({"topic": "t", "actions": list(actions), "options": options})
    return Registry().make(config.topics[0])


def test_time_limit_is_taken_out_of_the_options_of_actions_that_wait() -> None:
    """`timeLimit` is common to them; the action's own model never sees it, and plain actions have no such option."""
    waits, blocks, plain = f"{__name__}:Waits", f"{__name__}:Blocks", f"{__name__}:WithOptions"
    first, second = make([waits, blocks], {waits: {"timeLimit": 20, "limit": 4}})
    assert (first.time_limit_ms, first.options) == (20, Options(limit=4))
    assert (second.time_limit_ms, second.options) == (700, None)
    assert make([blocks], {blocks: {"timeLimit": 9}})[0].time_limit_ms == 9
    with pytest.raises(ActionError, match="cannot be created"):
        make([waits], {waits: {"timeLimit": 0}})
    assert make([plain], {})[0].time_limit_ms is None
    assert isinstance(make([blocks], {blocks: {"process": True}})[0], ProcessAction)


def test_configuration_says_where_actions_that_wait_may_stand_and_what_options_they_take() -> None:
    """Before a gate that reads the key from the body all must answer at once; a wrong option has its line."""
    text = f"""
topics: {{t: {{}}}}
groups:
  - group: g
    topics:
      - topic: t
        orderKey: $.a
        actions: [Json, "{__name__}:Waits", Async, "{__name__}:Blocks"]
        options: {{"{__name__}:Waits": {{process: true}}, "{__name__}:Blocks": {{timeLimit: soon}}}}
"""
    with pytest.raises(ConfigError) as failed:
        loads(text, actions=Registry())
    reported = "\n".join(str(problem) for problem in failed.value.problems)
    assert "actions[1]" in reported
    assert "is async or blocking and comes before the order gate" in reported
    assert "Waits.process" in reported
    assert "Blocks.timeLimit" in reported


def test_functions_are_actions_with_their_options_and_what_the_decorator_says() -> None:
    """A function of a job needs nothing else; it may be last, or wait in a thread, where it says so."""
    registry = Registry()
    plain, said = registry[f"{__name__}:consume"], registry[f"{__name__}:report"]
    assert (plain.may_be_last, plain.answers_at_once, plain.options_model) == (False, True, None)
    assert (said.may_be_last, said.needs_json, said.answers_at_once, said.options_model) == (True, True, False, Options)
    (made,) = make([f"{__name__}:report"], {f"{__name__}:report": {"limit": 0}})
    assert (made.time_limit_ms, made.options) == (50, Options(limit=0))
    assert type(made).__doc__ == "A function that says more."


def test_a_node_imports_only_the_actions_that_its_configuration_names() -> None:
    """Looking up Json brings neither HTTP nor sinks nor scripts, and no client library of theirs."""
    script = (
        "import sys; from actions.registry import Registry; Registry()['Json']; list(Registry()); "
        "libraries = ('aiohttp', 'redis', 'happybase', 'pyarrow'); "
        "ours = ('actions.sinks.redis.', 'actions.script.', 'actions.transform.transit', 'actions.pull_server'); "
        "print([name for name in sys.modules if name.split('.')[0] in libraries or name.startswith(ours)])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
    assert all(isinstance(place, str) for place in BUILT_IN.values())
