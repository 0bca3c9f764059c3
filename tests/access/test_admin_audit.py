"""Changes through the admin port and their trail: nothing is changed that it does not tell of."""

from __future__ import annotations

import errno
import json
from typing import Any

from structlog.testing import capture_logs

from proxy.access.audit import Who
from proxy.access.audit_file import LOST
from proxy.admin.console.node import ROWS_MAX
from proxy.operate.changes.desk import CHANGES as COUNTED
from proxy.operate.changes.desk import ChangeRefused
from tests.access.admin_world import AdminWorld
from tests.access.test_admin_gate import CHANGES

PAUSE: dict[str, Any] = {"method": "POST", "json": {"group": "billing"}}
FILE = "/data/pyddmq/audit/changes.jsonl"


def lines(world: AdminWorld) -> list[dict[str, object]]:
    """What the file of changes has."""
    file = world.disk.open(FILE)
    return [json.loads(line) for line in file.read(0, file.size()).splitlines()]


def test_change_has_a_line_before_it_is_made_and_one_with_its_outcome() -> None:
    """Who, by which token, from where, what with which body; the log line has the principal, too."""
    seen: list[int] = []
    world = AdminWorld(changes=CHANGES)
    world.before = lambda: seen.append(len(lines(world)))

    async def scenario() -> None:
        assert (await world.ask("/api/groups/pause", by="operator", **PAUSE)).status == 200

    world.run(scenario)
    assert seen == [1], "the first line is there when the change begins"
    asked, done = lines(world)
    assert (asked["outcome"], json.loads(str(asked["asked"]))) == ("asked", {"group": "billing", "topic": None})
    assert (done["outcome"], done["of"]) == ("done", asked["number"])
    for each in (asked, done):
        assert (each["principal"], each["way"], each["what"]) == ("operator", "token", "pause")
        assert each["address"] == "127.0.0.1"
        assert each["proof"] in world.tokens


def test_change_that_cannot_be_audited_is_refused_and_not_begun() -> None:
    """A full disk: 503 and a sentence that says what to do; when there is space again it is made."""
    world = AdminWorld(changes=CHANGES)

    async def scenario() -> None:
        world.disk.fail("write", error=errno.ENOSPC, path_part="audit")
        answer = await world.ask("/api/groups/pause", by="operator", **PAUSE)
        assert answer.status == 503
        assert answer.error == (
            "The audit trail cannot be written (No space left on device), so changes are refused: each change must be "
            "recorded. Free space in the data directory, and try again."
        )
        assert world.done == []
        world.disk.fail("write", error=errno.ENOSPC, path_part="audit")
        assert (await world.ask("/api/reload", method="POST", by="admin")).status == 503
        assert world.node.reloads == 0
        world.disk.heal()
        assert (await world.ask("/api/groups/pause", by="operator", **PAUSE)).status == 200

    world.run(scenario)
    assert len(world.done) == 1
    assert world.node.metrics.value(LOST, "changes") == 2
    assert world.node.metrics.value(COUNTED, "pause", "refused") == 1


def test_line_that_could_not_be_synced_lets_no_change_through() -> None:
    """It may not be there after a power loss."""
    world = AdminWorld(changes=CHANGES)

    async def scenario() -> None:
        assert (await world.ask("/api/groups/pause", by="operator", **PAUSE)).status == 200
        world.disk.fail("sync", path_part="audit")
        assert (await world.ask("/api/groups/pause", by="operator", **PAUSE)).status == 503
        world.disk.heal()
        assert (await world.ask("/api/groups/pause", by="operator", **PAUSE)).status == 200

    world.run(scenario)
    assert len(world.done) == 2


def test_outcomes_are_what_became_of_it() -> None:
    """Refused with its reason, failed by a fault; what is wrong in itself is no change, and has no line."""
    errors = iter([ChangeRefused(409, "It is in flight with a client."), RuntimeError("a fault")])

    def fail() -> None:
        raise next(errors)

    world = AdminWorld(changes=tuple(each for each in CHANGES if each.name in ("pause", "resume")))
    world.before = fail

    async def scenario() -> None:
        assert (await world.ask("/api/groups/pause", by="operator", **PAUSE)).status == 409
        assert (await world.ask("/api/groups/resume", by="operator", **PAUSE)).status == 500
        assert (await world.ask("/api/groups/pause", method="POST", by="operator", json={"x": 1})).status == 400

    world.run(scenario)
    reported = [(each["what"], each["outcome"], each["why"]) for each in lines(world)]
    assert reported == [
        ("pause", "asked", ""),
        ("pause", "refused", "It is in flight with a client."),
        ("resume", "asked", ""),
        ("resume", "failed", "RuntimeError"),
    ]


def test_trail_is_shown_to_who_may_administer() -> None:
    """As a page and as JSON, the newest first, with what people wrote as text."""
    world = AdminWorld(changes=CHANGES)

    async def scenario() -> None:
        body: dict[str, Any] = {"method": "POST", "json": {"group": "<script>alert(1)</script>"}}
        assert (await world.ask("/api/groups/pause", by="operator", **body)).status == 200
        world.clock.advance(1)
        for path in ("/audit", "/api/audit"):
            assert (await world.ask(path, by="viewer")).status == 403
        page = await world.ask("/audit", by="admin")
        assert page.status == 200
        assert "<script>" not in page.text
        assert "&lt;script&gt;alert(1)" in page.text
        found = json.loads((await world.ask("/api/audit?limit=2", by="admin")).text)
        assert [each["outcome"] for each in found["entries"]] == ["denied", "denied"]
        assert found["entriesTotal"] == 4
        status = await world.ask("/", by="all", headers={"Accept": "text/html"})
        assert 'href="/audit"' in status.text
        assert 'href="/audit"' not in (await world.ask("/", by="viewer", headers={"Accept": "text/html"})).text

    world.run(scenario)


def test_secret_of_a_token_stands_in_no_line() -> None:
    """Neither of one that was taken, nor of one that was not: the id alone tells which it was."""
    world = AdminWorld(changes=CHANGES)
    right = world.token("operator")
    wrong = right[:-8] + "deadbeef"

    async def scenario() -> None:
        await world.ask("/api/groups/pause", by="operator", **PAUSE)
        await world.ask("/api/groups/pause", headers={"Authorization": f"Bearer {wrong}"}, **PAUSE)
        await world.ask("/sign-in", method="POST", data={"token": right}, headers=world.origin())
        await world.ask("/sign-in", method="POST", data={"token": wrong}, headers=world.origin())

    world.run(scenario)
    written = b"".join(world.disk.contents().values())
    assert right[7:23].encode() in written
    for text in (right[24:], wrong[24:], right[-40:-8]):
        assert text.encode() not in written


def test_trail_is_searched_as_far_as_it_is_in_memory() -> None:
    """An entry behind the rows that one page shows is found."""
    world = AdminWorld(changes=CHANGES)

    async def scenario() -> None:
        assert (await world.ask("/api/groups/pause", by="operator", **PAUSE)).status == 200
        for number in range(ROWS_MAX):
            world.audit.ended("sign_in", "done", Who(principal=f"p{number}"))
        page = await world.ask("/audit?q=operator", by="admin")
        assert "No entry" not in page.text
        assert "billing" in page.text
        assert (await world.ask("/audit", by="admin")).text.count('data-label="Who"') == ROWS_MAX

    world.run(scenario)


def test_configuration_that_is_tried_stands_in_no_line() -> None:
    """Neither of the log nor of the trail: somebody may have written a secret into it."""
    world = AdminWorld(changes=CHANGES)
    body = {"dryRun": True, "text": "topics: {orders: {}}\npassword: hunter2", "file": "next.yaml"}

    async def scenario() -> None:
        assert (await world.ask("/api/reload", method="POST", by="admin", json=body)).status == 200

    with capture_logs() as logs:
        world.run(scenario)
    [line] = [each for each in logs if each["event"] == "admin_change"]
    assert line["asked"] == {"acceptLoss": False, "dryRun": True, "text": "(38 characters)", "file": "next.yaml"}
    assert "hunter2" not in json.dumps([*lines(world), *logs], default=str)
