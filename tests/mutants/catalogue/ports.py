"""What one client may take of a port: places, long frames, the admin port, and what calls keep."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

PLACES = "tests/hostile/test_places.py"
LONG = "tests/hostile/test_too_long.py"
ADMIN = "tests/hostile/test_admin_port.py"
KEPT = "tests/hostile/test_frames_kept.py"

MUTANTS = (
    Mutant(
        name="one address may take all places",
        file="proxy/node/assembly.py",
        old="node.max_connections_per_address or -(-node.max_connections * 3 // 4),\n",
        new="node.max_connections_per_address or node.max_connections,\n",
        caught_by=(f"{PLACES}::test_one_address_leaves_places_to_others",),
    ),
    Mutant(
        name="an address keeps the places of connections that it closed",
        file="proxy/port/server.py",
        old="            self._hosts[host] = left\n",
        new="            pass\n",
        caught_by=(f"{PLACES}::test_share_of_an_address_is_what_the_configuration_says",),
    ),
    Mutant(
        name="a client with a parked pull counts as idle",
        file="proxy/port/connection.py",
        old="        return self.share.last < since and not (self._slots or ",
        new="        return self.share.last < since and not (",
        caught_by=(f"{PLACES}::test_idle_connection_makes_room_and_a_waiting_pull_does_not",),
    ),
    Mutant(
        name="who is idle is closed while there are places",
        file="proxy/port/server.py",
        old="                self._idle[connection] = None\n",
        new='                self._refuse("idle", connection)\n                connection.drop()\n',
        caught_by=(f"{PLACES}::test_nobody_is_closed_for_being_idle_while_there_are_places",),
    ),
    Mutant(
        name="somebody else's idle connection makes room for an address",
        file="proxy/port/server.py",
        old="            if host is not None and connection.host != host:\n                continue\n",
        new="",
        caught_by=(f"{PLACES}::test_idle_connection_of_the_same_address_makes_room_for_its_next",),
    ),
    Mutant(
        name="a reload leaves the bounds of connections as they were",
        file="proxy/node/node.py",
        old="            server.limits = server_limits(node, self.seams)\n",
        new="            pass\n",
        caught_by=(f"{PLACES}::test_a_reload_changes_both_bounds",),
    ),
    Mutant(
        name="a frame that is too long is kept whole",
        file="proxy/wire/frames.py",
        old="        self._cut += taken[: max(0, 4 + CUT_HEAD_BYTES - len(self._cut))]\n",
        new="        self._cut += taken\n",
        caught_by=(f"{LONG}::test_splitter_hands_out_the_head_of_a_long_frame_however_it_arrives",),
    ),
    Mutant(
        name="what follows a frame that is too long goes with it",
        file="proxy/wire/frames.py",
        old="        self._buffer, self._pos, self._rest = data[len(taken) :], 0, bytearray()\n",
        new='        self._buffer, self._pos, self._rest = b"", 0, bytearray()\n',
        caught_by=(f"{LONG}::test_splitter_hands_out_the_head_of_a_long_frame_however_it_arrives",),
    ),
    Mutant(
        name="gigabytes are read to their end",
        file="proxy/wire/frames.py",
        old="        return self._frame_bytes_max < size <= CUT_BYTES_MAX and (\n",
        new="        return self._frame_bytes_max < size and (\n",
        caught_by=(f"{LONG}::test_splitter_refuses_what_is_far_too_long_at_once",),
    ),
    Mutant(
        name="a send that is too long ends its connection",
        file="proxy/wire/frames.py",
        old="                if self._may_be_cut(buffer[pos : pos + 6], size):\n",
        new="                if size < 0:\n",
        caught_by=(f"{LONG}::test_send_above_the_limit_gets_its_result_and_its_connection_lives",),
    ),
    Mutant(
        name="a send that is too long is answered as no send is",
        file="proxy/port/too_long.py",
        old='_RESULTS = frozenset(("sendSync", ',
        new="_RESULTS = frozenset((",
        caught_by=(f"{LONG}::test_send_above_the_limit_gets_its_result_and_its_connection_lives",),
    ),
    Mutant(
        name="results that were not read are answered",
        file="proxy/port/too_long.py",
        old='_CARRY_RESULTS = frozenset(("pull", "submit", ',
        new='_CARRY_RESULTS = frozenset(("pull", ',
        caught_by=(f"{LONG}::test_results_above_the_limit_end_their_connection_unanswered",),
    ),
    Mutant(
        name="a frame that is too long has time without end",
        file="proxy/wire/frames.py",
        old="(self.buffered > 0 or self._cut_left > 0)",
        new="self.buffered > 0",
        caught_by=(f"{LONG}::test_long_frame_that_never_ends_has_the_time_of_any_frame",),
    ),
    Mutant(
        name="health checks have no place of their own",
        file="proxy/admin/guard.py",
        old="                self._admit_in_reserve(inner, connection)\n                return True\n",
        new="                return False\n",
        caught_by=(f"{ADMIN}::test_liveness_is_answered_while_slow_bodies_hold_every_place",),
    ),
    Mutant(
        name="places in reserve are for every request",
        file="proxy/admin/guard.py",
        old="        connection.in_reserve = True\n",
        new="",
        caught_by=(f"{ADMIN}::test_liveness_is_answered_while_slow_bodies_hold_every_place",),
    ),
    Mutant(
        name="a body that never comes is waited for",
        file="proxy/admin/guard.py",
        old='        if body:\n            self._watch(BODY_SECONDS_MAX, "slow_body")\n',
        new="",
        caught_by=(f"{ADMIN}::test_slow_body_is_closed_and_its_place_is_free",),
    ),
    Mutant(
        name="pages are shown under any name",
        file="proxy/admin/routes.py",
        old="        if is_open or (request.method in _CHANGING",
        new="        if is_open or request.path != '/' or (request.method in _CHANGING",
        caught_by=(f"{ADMIN}::test_pages_are_not_shown_under_a_foreign_name",),
    ),
    Mutant(
        name="health needs the node's own name",
        file="proxy/admin/routes.py",
        old="        is_open = request.path in PROBES\n",
        new="        is_open = False\n",
        caught_by=(f"{ADMIN}::test_pages_are_not_shown_under_a_foreign_name",),
    ),
    Mutant(
        name="bodies of messages are cut for who has no token",
        file="proxy/admin/entry/rights.py",
        old='    if resource.canonical == "/api/messages" and request.query.get("body") != "none":\n',
        new='    if resource.canonical == "/api/messages" and request.query.get("body") == "whole":\n',
        caught_by=(f"{ADMIN}::test_bodies_of_messages_need_the_token",),
    ),
    Mutant(
        name="a token is compared as text",
        file="proxy/operate/changes/desk.py",
        old='        if not hmac.compare_digest(given.encode("utf-8", "surrogateescape"), token.encode()):\n',
        new="        if not hmac.compare_digest(given, token):\n",
        caught_by=(f"{ADMIN}::test_authorization_of_any_bytes_is_refused_and_no_fault",),
    ),
    Mutant(
        name="an add that comes again is kept whole until the first is stored",
        file="proxy/services/delay_service.py",
        old="            waiters.append((connection.later() if slot is None else slot, call.header()))\n",
        new="            waiters.append((connection.later() if slot is None else slot, call))\n",
        caught_by=(f"{KEPT}::test_repeated_adds_and_cancels_keep_no_frames",),
    ),
    Mutant(
        name="a cancel is kept whole through its steps",
        file="proxy/services/delay_service.py",
        old="self._answering(steps, slot, call.header(), occurrence, ended)",
        new="self._answering(steps, slot, call, occurrence, ended)",
        caught_by=(f"{KEPT}::test_repeated_adds_and_cancels_keep_no_frames",),
    ),
)
