"""`pyddmq config check`: looks at a configuration file before a node is given it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from proxy.cli.options import AsJson
from proxy.cli.output import print_json, print_line
from proxy.operate.text import amount
from proxy.process.exit_codes import ExitCode

if TYPE_CHECKING:
    from conf import Loaded
    from conf.problems import Problem
if TYPE_CHECKING:
    from conf import Config
    from conf.problems import Problem


# The part of `pyddmq config check` that asks the Kafka clusters of a configuration.


def look_at_clusters(config: Config, file: str) -> tuple[ExitCode, list[Problem], list[Problem]]:
    """Return the code for what was found, the errors, and the warnings."""
    # Cold (D38): who checks a file alone needs none of it.
    from conf.problems import Problem
    from conf.secrets import SecretUnreadable
    from upstream.kafka.cluster_facts import ClusterFacts
    from upstream.kafka.cluster_rules import mismatches, wanted_of
    from upstream.kafka_client.cluster_inspection import look_beside
    from upstream.kafka_client.package import KafkaUnusable

    problems: list[Problem] = []
    warnings: list[Problem] = []
    unasked = False
    for name, cluster in config.kafka.items():
        try:
            facts: ClusterFacts = look_beside(name, cluster, *wanted_of(config, name))
        except (KafkaUnusable, SecretUnreadable) as error:
            problems.append(Problem(file, None, f"kafka.{name}", str(error)))
            unasked = True
            continue
        unasked |= bool(facts.trouble)
        for path, bad, text in mismatches(config, name, facts):
            (problems if bad else warnings).append(Problem(file, None, ".".join(path), text))
    return ExitCode.CANNOT_CONNECT if unasked else ExitCode.CHECK_FAILED, problems, warnings


def check(
    *,
    file: Annotated[Path, typer.Argument(help="Configuration file.", readable=False)],
    kafka: Annotated[bool, typer.Option("--kafka", help="Also check the file against its Kafka clusters.")] = False,
    admin: Annotated[
        str | None,
        typer.Option(
            "--admin",
            metavar="HOST:PORT",
            help="Admin port of a node: also report retention limits that would delete unfinished messages of "
            "the node.",
        ),
    ] = None,
    as_json: AsJson = False,
) -> int:
    """Check a configuration file; print each problem with file, line, key and correction."""
    from actions.registry import Registry
    from conf.loader import load
    from conf.problems import ConfigError

    problems: list[Problem] = []
    warnings: list[Problem] = []
    code = ExitCode.CONFIG_INVALID
    try:
        loaded = load(str(file), actions=Registry())
        warnings = loaded.warnings
        problems = [*_of_access_files(loaded), *_of_certificates(loaded)]
        if kafka and not problems:
            code, problems, more = look_at_clusters(loaded.config, str(file))
            warnings = [*warnings, *more]
        if admin is not None and not problems:
            problems = _of_losses(loaded, admin)
            code = ExitCode.REFUSED if problems else code
    except ConfigError as error:
        problems = error.problems
    if as_json:
        reported = {"problems": [_fields(each) for each in problems], "warnings": [_fields(each) for each in warnings]}
        print_json({"file": str(file), "valid": not problems, **reported})
        return code if problems else ExitCode.OK
    for line in [*(str(problem) for problem in problems), *(f"warning: {warning}" for warning in warnings)]:
        print_line(line)
    if problems:
        wrong = _WRONG.get(code, "does not match its clusters")
        print_line(f"{file} {wrong}: {amount(len(problems), 'problem')}")
        return code
    fits = ", and its clusters match it" if kafka else ""
    reported_of = f"{amount(len(loaded.config.topics), 'topic')}, {amount(len(loaded.config.groups), 'group')}"
    return print_line(f"{file} is valid{fits}: {reported_of}")


_WRONG = {
    ExitCode.CONFIG_INVALID: "is not valid",
    ExitCode.REFUSED: "would delete messages of the node",
}


def _of_losses(loaded: Loaded, admin: str) -> list[Problem]:
    """Ask a node how many unfinished messages the file's limits of retention would delete."""
    from proxy.cli.admin_client import get
    from proxy.node.reload import loss_sentence
    from proxy.operate.views.changes import LossesAnswer

    settings = loaded.config.node.model_dump(by_alias=True)
    limits = {name: settings[name] or "" for name in settings if name.startswith("retention")}
    losses = get(admin, "/api/losses", LossesAnswer, parameters=limits)
    if not losses.groups:
        return []
    text = loss_sentence({each.group: each.messages for each in losses.groups})
    return [loaded.problem(("node", "retentionBytes"), text)]


def _of_access_files(loaded: Loaded) -> list[Problem]:
    """Read the files of the section `access` as a start would."""
    from conf.sections import access_files
    from proxy.access.access import Policy

    access = loaded.config.access
    if access is None:
        return []
    try:
        Policy(access, access_files.read(access), access_files.signature(access))
    except access_files.AccessUnreadable as error:
        return [loaded.problem(error.path, error.text)]
    return []


def _of_certificates(loaded: Loaded) -> list[Problem]:
    """Look at the files of TLS ports as a start would."""
    from proxy.tls.files import RealTlsFiles, TlsFileBad

    found: dict[Problem, None] = {}
    tls = loaded.config.tls
    for name in tls.listeners():
        try:
            RealTlsFiles().build(tls.files(name))
        except TlsFileBad as error:
            found[loaded.problem(("tls", *tls.place(name, error.field)), str(error))] = None
    return list(found)


def _fields(problem: Problem) -> dict[str, str | int | None]:
    return {"file": problem.file, "line": problem.line, "key": problem.path, "text": problem.text}
