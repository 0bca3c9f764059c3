"""Who may ask the admin port for what: rights, sessions, the look at host and origin, and the audit trail."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

GATE_TESTS = "tests/access/test_admin_gate.py"
SIGN_IN = "tests/access/test_admin_sign_in.py"
AUDIT = "tests/access/test_admin_audit.py"
COMMANDS = "tests/access/test_command_rights.py"
SESSIONS = "tests/unit/proxy/access/test_sessions.py"
TRAIL = "tests/unit/proxy/access/test_trail.py"
ATTEMPTS = "tests/unit/proxy/access/test_attempts.py"
GATE = "proxy/admin/entry/gate.py"
DESK = "proxy/operate/changes/desk.py"

MUTANTS = (
    Mutant(
        name="access: reading the admin port needs no right",
        file=GATE,
        old="        self._allow(request, asker, asker.rights, need.action, need.on(request))\n",
        new="        need.on(request)\n",
        caught_by=(
            f"{GATE_TESTS}::test_every_route_is_denied_without_its_right_and_answered_with_it",
            f"{GATE_TESTS}::test_who_may_see_one_name_sees_that_and_no_other",
            f"{GATE_TESTS}::test_metrics_are_answered_by_a_token_that_may_view",
        ),
        rows=("W10",),
    ),
    Mutant(
        name="access: changes through the admin port need no right",
        file=DESK,
        old="            self._gate.allow_change(request, asker, change, body)\n",
        new="",
        caught_by=(f"{GATE_TESTS}::test_every_route_is_denied_without_its_right_and_answered_with_it",),
        rows=("W10",),
    ),
    Mutant(
        name="access: who may view a topic reads its bodies",
        file="proxy/admin/entry/rights.py",
        old="BODIES = MESSAGES._replace(action=Action.READ_BODIES)\n",
        new="BODIES = MESSAGES\n",
        caught_by=(f"{GATE_TESTS}::test_bodies_need_the_right_to_read_them",),
    ),
    Mutant(
        name="access: an id opens messages of the topic that is named beside it",
        file="proxy/admin/entry/rights.py",
        old=' if "topic" in query and not {"id", "physical"} & query.keys() else ',
        new=' if "topic" in query else ',
        caught_by=(f"{GATE_TESTS}::test_bodies_need_the_right_to_read_them",),
    ),
    Mutant(
        name="access: timers without a topic are of no topic",
        file="proxy/operate/changes/steps.py",
        old="    return tuple(dict.fromkeys(name.topic or EVERYTHING for name in names))\n",
        new="    return tuple(dict.fromkeys(name.topic for name in names if name.topic))\n",
        caught_by=(f"{GATE_TESTS}::test_who_may_see_one_name_sees_that_and_no_other",),
    ),
    Mutant(
        name="access: a wrong token goes on as its network says",
        file=GATE,
        old="        if given is not None:\n            return _asker(",
        new='        if given is not None and "pyddmq_" in given:\n            return _asker(',
        caught_by=(f"{GATE_TESTS}::test_token_that_proves_nothing_is_never_followed_by_the_network",),
    ),
    Mutant(
        name="access: a session that is over goes on as its network says",
        file=GATE,
        old='                raise Unknown("This session has ended: sign in again.", "session")\n',
        new="                return _asker(access.rights_of(address, None), address)\n",
        caught_by=(f"{SIGN_IN}::test_session_that_is_over_is_never_followed_by_the_network",),
    ),
    Mutant(
        name="access: a page of another site may change by a session",
        file=GATE,
        old="    if origin is not None and origin not in own:\n",
        new='    if origin is not None and origin not in own and request.method == "GET":\n',
        caught_by=(
            f"{SIGN_IN}::test_change_by_a_session_needs_the_origin_that_browsers_send",
            f"{GATE_TESTS}::test_host_and_origin_are_looked_at_on_every_route_but_probes",
        ),
    ),
    Mutant(
        name="access: a change by a session needs no origin",
        file=GATE,
        old='            if is_change and "Origin" not in request.headers and',
        new="            if is_change and not request.headers and",
        caught_by=(f"{SIGN_IN}::test_change_by_a_session_needs_the_origin_that_browsers_send",),
    ),
    Mutant(
        name="access: metrics are answered under any name",
        file="proxy/admin/routes.py",
        old="        if self._gate.access is None:\n            # Scrapers",
        new="        if self._gate is not None:\n            # Scrapers",
        caught_by=(
            f"{GATE_TESTS}::test_host_and_origin_are_looked_at_on_every_route_but_probes",
            f"{GATE_TESTS}::test_metrics_are_answered_by_a_token_that_may_view",
        ),
    ),
    Mutant(
        name="access: a probe says why to anybody",
        file="proxy/admin/routes.py",
        old="        if not self._gate.may_see_all(request):\n",
        new='        if not self._gate.may_see_all(request) and "verbose" in request.query:\n',
        caught_by=(f"{GATE_TESTS}::test_probes_are_open_and_say_no_more_than_whether",),
    ),
    Mutant(
        name="access: a form signs in over a network without TLS",
        file="proxy/admin/entry/sign_in.py",
        old='        if not is_private(request):\n            self._count("off")\n',
        new='        if not is_private(request) and not request.headers:\n            self._count("off")\n',
        caught_by=(f"{SIGN_IN}::test_over_a_network_without_tls_nobody_signs_in_and_no_token_is_taken",),
    ),
    Mutant(
        name="access: scripts read the session's cookie",
        file="proxy/admin/entry/sign_in.py",
        old="            sessions.begin(proven),\n            httponly=True,\n",
        new="            sessions.begin(proven),\n",
        caught_by=(f"{SIGN_IN}::test_cookie_is_read_by_no_script_and_sent_by_no_other_site",),
    ),
    Mutant(
        name="access: tries to sign in are not limited",
        file="proxy/access/attempts.py",
        old="        if wait_seconds > 0:\n",
        new="        if wait_seconds > 1e9:\n",
        caught_by=(
            f"{SIGN_IN}::test_tries_of_an_address_are_limited_and_it_is_told_when_to_come_again",
            f"{ATTEMPTS}::test_address_has_so_many_tries_and_then_one_after_the_other",
        ),
    ),
    Mutant(
        name="access: a session goes on when its token is revoked",
        file="proxy/access/sessions.py",
        old="            if renewed is None:\n                self._forget(digest)\n            else:\n",
        new="            if renewed is not None:\n",
        caught_by=(
            f"{SESSIONS}::test_session_ends_with_its_token",
            f"{SIGN_IN}::test_session_ends_at_the_next_request_when_its_token_is_revoked",
        ),
    ),
    Mutant(
        name="access: a session never idles",
        file="proxy/access/sessions.py",
        old="            now - session.used >= IDLE_SECONDS\n            or ",
        new="            ",
        caught_by=(f"{SESSIONS}::test_session_ends_when_nobody_uses_it",),
    ),
    Mutant(
        name="access: a page that loads itself again uses its session",
        file=GATE,
        old="is_use=AGAIN not in request.query",
        new="is_use=True",
        caught_by=(f"{SIGN_IN}::test_page_that_loads_itself_again_keeps_no_session_alive",),
    ),
    Mutant(
        name="access: sessions of one principal are not bounded",
        file="proxy/access/sessions.py",
        old="        if len(own) >= PRINCIPAL_MAX:\n",
        new="        if len(own) >= SESSIONS_MAX:\n",
        caught_by=(f"{SESSIONS}::test_sessions_of_a_principal_and_of_all_are_bounded",),
    ),
    Mutant(
        name="access: a change that cannot be audited is made",
        file=DESK,
        old="        except AuditUnwritable as error:\n            raise ChangeRefused(",
        new="        except AuditUnwritable as error:\n            return 0\n            raise ChangeRefused(",
        caught_by=(
            f"{AUDIT}::test_change_that_cannot_be_audited_is_refused_and_not_begun",
            f"{AUDIT}::test_line_that_could_not_be_synced_lets_no_change_through",
        ),
    ),
    Mutant(
        name="access: a change is audited when it is over",
        file=DESK,
        old="                line = await self._audited(change, who, body)\n"
        "                answer = change.run(body)\n"
        "                result: View = await answer if inspect.isawaitable(answer) else answer\n",
        new="                answer = change.run(body)\n"
        "                result: View = await answer if inspect.isawaitable(answer) else answer\n"
        "                line = await self._audited(change, who, body)\n",
        caught_by=(
            f"{AUDIT}::test_change_has_a_line_before_it_is_made_and_one_with_its_outcome",
            f"{AUDIT}::test_change_that_cannot_be_audited_is_refused_and_not_begun",
        ),
    ),
    Mutant(
        name="access: the trail is shown to everybody",
        file="proxy/admin/entry/rights.py",
        old='        "/audit": ADMINISTER,\n        "/api/audit": ADMINISTER,\n',
        new='        "/audit": ALL,\n        "/api/audit": ALL,\n',
        caught_by=(f"{AUDIT}::test_trail_is_shown_to_who_may_administer",),
    ),
    Mutant(
        name="access: a line of the trail is not synced",
        file="proxy/access/trail.py",
        old="        if self._syncs is None:\n            self._synced_at_once(self._file)\n            return\n",
        new="        if self._syncs is None:\n            return\n",
        caught_by=(f"{TRAIL}::test_kept_line_is_there_after_a_power_cut",),
    ),
    Mutant(
        name="access: a torn line swallows the next one",
        file="proxy/access/trail.py",
        old='            if end and file.read(end - 1, 1) != b"\\n":\n',
        new='            if not end and file.read(0, 1) != b"":\n',
        caught_by=(f"{TRAIL}::test_what_is_no_entry_is_passed_over_and_stays",),
    ),
    Mutant(
        name="access: old files of the trail stay for ever",
        file="proxy/access/trail.py",
        old="            if number >= kept - 1:\n",
        new="            if number >= 1_000:\n",
        caught_by=(f"{TRAIL}::test_large_file_is_put_aside_and_the_oldest_goes",),
    ),
    Mutant(
        name="access: a command asks for more than its right",
        file="proxy/cli/command_rights.py",
        old='        "offsets reset": _OPERATE,\n',
        new='        "offsets reset": _VIEW,\n',
        caught_by=(f"{COMMANDS}::test_commands_need_what_their_requests_need",),
    ),
    Mutant(
        name="access: a command sends its token over a plain network",
        file="proxy/cli/admin_client.py",
        old="            is_kept_back = tls is None and not is_loopback(connection.sock.getpeername())\n",
        new="            is_kept_back = False\n",
        caught_by=("tests/tls/test_admin_sign_in.py::test_token_is_kept_back_from_a_network_without_tls",),
    ),
)
