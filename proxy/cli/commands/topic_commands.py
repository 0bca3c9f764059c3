"""`pyddmq topics create | alter | delete`: topics made, widened, typed and deleted on a running node."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from broker.format.message_type import MessageType
from proxy.cli.admin_client import delete as delete_at
from proxy.cli.admin_client import get, post
from proxy.cli.errors import CliError
from proxy.cli.options import ADMIN_DEFAULT, AdminAddress, AsJson
from proxy.cli.output import print_json, print_line
from proxy.operate.text import amount
from proxy.operate.views.changes import DeletionResult, LossesAnswer, TopicResult
from proxy.operate.views.topics import TopicsAnswer
from proxy.process.exit_codes import ExitCode

Name = Annotated[str, typer.Argument(help="The topic.")]
Queues = Annotated[int, typer.Option("--queues", min=1, max=1024, help="Number of queues.")]
MoreQueues = Annotated[int | None, typer.Option("--queues", min=1, max=1024, help="Number of queues.")]
Type = Annotated[
    MessageType | None, typer.Option("--type", case_sensitive=False, help="Accepted message type; MIXED accepts all.")
]


def create(
    *,
    topic: Name,
    queues: Queues = 4,
    message_type: Type = None,
    admin: AdminAddress = ADMIN_DEFAULT,
    as_json: AsJson = False,
) -> int:
    """Create a topic without listing it in the configuration; it also exists after a restart."""
    answer = post(admin, "/api/topics", {"topic": topic, "queues": queues, "messageType": message_type}, TopicResult)
    if as_json:
        return print_json(answer)
    return print_line(f"topic {topic} exists, with {amount(len(answer.queues), 'queue')}")


def alter(
    *,
    topic: Name,
    queues: MoreQueues = None,
    message_type: Type = None,
    admin: AdminAddress = ADMIN_DEFAULT,
    as_json: AsJson = False,
) -> int:
    """Give a topic more queues (never fewer) or another message type; stored messages stay unchanged."""
    answer = post(
        admin, "/api/topics/alter", {"topic": topic, "queues": queues, "messageType": message_type}, TopicResult
    )
    if as_json:
        return print_json(answer)
    return print_line(f"topic {topic} has {amount(len(answer.queues), 'queue')} and takes {answer.message_type}")


def delete(
    *,
    topic: Name,
    yes: Annotated[
        str | None, typer.Option("--yes", metavar="NAME", help="The topic's name again, as confirmation.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Also empty a topic that the configuration lists.")] = False,
    admin: AdminAddress = ADMIN_DEFAULT,
    as_json: AsJson = False,
) -> int:
    """Delete a topic; its messages can no longer be read. Asks for the name again."""
    confirmed = yes if yes is not None else _decide(topic, admin)
    if confirmed != topic:
        raise CliError(f"nothing was deleted: {confirmed!r} is not {topic!r}.", ExitCode.USAGE)
    answer = delete_at(admin, "/api/topics", {"topic": topic, "confirm": confirmed, "force": force}, DeletionResult)
    if as_json:
        return print_json(answer)
    done = "emptied; it still exists since the configuration lists it" if answer.emptied else "deleted"
    return print_line(f"topic {topic} is {done}; {amount(answer.messages, 'message')} deleted")


def _decide(topic: str, admin: str) -> str:
    """Show what would go and ask for the name; without a terminal it must be given by --yes."""
    if not sys.stdin.isatty():
        losses = get(admin, "/api/losses", LossesAnswer, parameters={"topic": topic})
        unfinished = f"unfinished: {losses.sentence}; " if losses.groups else ""
        raise CliError(f"{unfinished}pass --yes {topic} to delete without confirmation.", ExitCode.USAGE)
    answer = get(admin, "/api/topics", TopicsAnswer, parameters={"topic": topic})
    if not answer.topics:
        text = f"topic {topic} is in Kafka; delete it there, as with kafka-topics.sh --delete."
        raise CliError(text, ExitCode.REFUSED)
    [found] = answer.topics
    print(
        f"{amount(found.messages, 'message')} in {amount(len(found.queues), 'queue')} will be deleted.", file=sys.stderr
    )
    losses = get(admin, "/api/losses", LossesAnswer, parameters={"topic": topic})
    if losses.groups:
        print(f"Unfinished: {losses.sentence}.", file=sys.stderr)
    print("Type the topic's name to delete it: ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip()
