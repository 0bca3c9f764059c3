"""The look at a connection's rights, of each kind of call, before anything else is looked at.

Each look returns whether the call may continue, and has denied it where it may not. Services make it where the
connection has rights at all (`connection.rights`), so that a node without rules pays for a comparison with None.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from broker.deduplication.numbers import NAME_BYTES
from proxy.access.access import Access
from proxy.access.rights import Rights
from proxy.access.rules import Permission
from proxy.port.connection import Connection
from proxy.port.reply_slot import ReplySlot
from proxy.services.access.denials import Denials, denied_text
from proxy.services.message_rules import Refusal
from proxy.wire.call import Call
from proxy.wire.errors import APPLICATION_INTERNAL_ERROR
from proxy.wire.fetch_reply import encode_fetch_refusal
from proxy.wire.generic.calls import encode_application_exception
from proxy.wire.replies import encode_bool_reply, encode_pull_exception
from proxy.wire.texts import shown
from proxy.wire.transactions import CheckCall, EndRequest, HalfCall
from proxy.wire.values import ConsumeResult, PullRequest, SendMessage
from pyddmq.codes import PullCode, ResultCode


def _rights(connection: Connection) -> Rights:
    assert connection.rights is not None, "asked where there are rules"
    return connection.rights


class Guard:
    """Looks for one node; `access` is None without rules."""

    def __init__(self, access: Access | None, denials: Denials) -> None:
        self.access = access
        self.denials = denials

    # Consumers

    def pull(self, connection: Connection, call: Call, request: PullRequest, slot: ReplySlot | None = None) -> bool:
        """Look at a pull; `slot` is its place where it has one."""
        if _rights(connection).may_consume(request.group):
            return True
        self.denials.note(connection, "pull", request.group)
        text = denied_text(connection, "consume as", request.group)
        reply = encode_pull_exception(call.header(), PullCode.DENIED, text)
        self.denials.hold(connection, reply, request.linger_ms, slot)
        return False

    def results(self, connection: Connection, results: list[ConsumeResult], method: str) -> list[ConsumeResult]:
        """Return the results of a chain that may count; each by its own group. Those without one are no matter."""
        may_consume = _rights(connection).may_consume
        for each in results:
            if each.group is not None and not may_consume(each.group):
                break
        else:
            return results
        kept, denied = [], []
        for each in results:
            if each.group is None or may_consume(each.group):
                kept.append(each)
            else:
                denied.append(each.group)
        self.denials.note(connection, f"{method} result", denied[0], count=len(denied))
        return kept

    def submit(self, connection: Connection, results: list[ConsumeResult]) -> list[ConsumeResult] | None:
        """Look at a submit; return the results that may count, None where none does."""
        kept = self.results(connection, results, "submit")
        return None if results and not kept else kept

    def stats(self, connection: Connection, call: Call, group: str) -> bool:
        """Look at a getConsumeStats."""
        rights = _rights(connection)
        if rights.may_consume(group) or rights.may(Permission.VIEW, group):
            return True
        self.denials.note(connection, "getConsumeStats", group)
        text = denied_text(connection, "view", group)
        connection.answer(encode_pull_exception(call, PullCode.DENIED, text))
        return False

    def fetch(self, connection: Connection, call: Call, request: Mapping[str, Any]) -> bool:
        """Look at a fetch."""
        group = request["groupId"]
        if _rights(connection).may_consume(group):
            return True
        self.denials.note(connection, "fetch", group)
        reply = encode_fetch_refusal(call.header(), PullCode.DENIED)
        self.denials.hold(connection, reply, request.get("maxLingerTime"))
        return False

    def ack(self, connection: Connection, call: Call, group: str) -> bool:
        """Look at an ack."""
        if _rights(connection).may_consume(group):
            return True
        self.denials.note(connection, "ack", group)
        connection.answer(encode_bool_reply(call, False))
        return False

    # Producers

    def produce(self, connection: Connection, method: str, messages: Sequence[SendMessage]) -> None:
        """Look at messages that are sent. Raises Refusal."""
        rights = _rights(connection)
        produces = rights.produces
        for message in messages:
            if message.topic not in produces and not rights.may_produce(message.topic):
                self._refuse(connection, method, "produce to", shown(message.topic), len(messages))

    def numbers(self, connection: Connection, method: str, key: bytes | None, count: int = 1) -> None:
        """Look at whose the numbers of messages are that may be sent; their producer's name is the first's.

        Raises:
            Refusal: They are another principal's, or it cannot be kept that they are this one's.
        """
        if key is None or self.access is None:
            return
        try:
            is_own = self.access.owns(key, _rights(connection).principal)
        except OSError as error:
            text = f"the owner of this producer cannot be stored ({error.strerror or error}); send again"
            raise Refusal(ResultCode.FAIL_UNKNOWN, text) from error
        if not is_own:
            name = key[:NAME_BYTES].decode("ascii", "replace")
            self.denials.note(connection, method, name, reason="owner", count=count)
            # Clients take a new name after a gap: theirs may have been forgotten, and taken by another one.
            text = f"the producer {name} belongs to another principal; send under another name"
            raise Refusal(ResultCode.FAIL_GAP, text)

    def topic(self, connection: Connection, method: str, topic: str) -> None:
        """Look at one topic. Raises Refusal."""
        if not _rights(connection).may_produce(topic.encode()):
            self._refuse(connection, method, "produce to", topic, 1)

    def half(self, connection: Connection, request: HalfCall) -> None:
        """Look at a half. Raises Refusal."""
        self.transact(connection, "sendHalfSync", request.group)
        self.produce(connection, "sendHalfSync", (request.message,))

    def transact(self, connection: Connection, method: str, group: str) -> None:
        """Look at a producer group. Raises Refusal."""
        if not _rights(connection).may(Permission.TRANSACT, group):
            self._refuse(connection, method, "decide as", group, 1)

    def checks(self, connection: Connection, call: Call, request: CheckCall) -> bool:
        """Look at a fetchChecks."""
        if _rights(connection).may(Permission.TRANSACT, request.group):
            return True
        self.denials.note(connection, "fetchChecks", request.group)
        text = denied_text(connection, "decide as", request.group)
        reply = encode_application_exception(call.header(), APPLICATION_INTERNAL_ERROR, text)
        self.denials.hold(connection, reply, request.linger_ms)
        return False

    def answers(self, connection: Connection, request: CheckCall) -> list[EndRequest]:
        """Return the answers of a fetchChecks that may count; each by its own group."""
        rights = _rights(connection)
        kept, denied = [], []
        for each in request.answers:
            group = each.group or request.group
            if rights.may(Permission.TRANSACT, group):
                kept.append(each)
            else:
                denied.append(group)
        if denied:
            self.denials.note(connection, "fetchChecks answer", denied[0], count=len(denied))
        return kept

    def _refuse(self, connection: Connection, method: str, what: str, resource: str, count: int) -> None:
        self.denials.note(connection, method, resource, count=count)
        raise Refusal(ResultCode.FAIL_TOPIC_NOT_ALLOWED, denied_text(connection, what, resource))


def owner_of(connection: Connection) -> str | None:
    """Return the principal that what is stored now belongs to; None where there are no rules."""
    return None if connection.rights is None else connection.rights.principal
