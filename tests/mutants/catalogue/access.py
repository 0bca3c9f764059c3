"""Who may do what: rights on calls, what belongs to whom, tokens, and changes of the rules."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

DENIALS = "tests/access/test_denials.py"
SIGN_IN = "tests/access/test_sign_in.py"
OWNERS = "tests/access/test_owners_node.py"
CHANGES = "tests/access/test_reload_and_start.py"
MATRIX = "tests/access/test_matrix.py"
SDKS = "tests/access/test_sdks_without_credentials.py"
CONSUMER = "proxy/services/consumer_service.py"
ACCESS = "proxy/access/access.py"

MUTANTS = (
    Mutant(
        name="pulls need no right",
        file="proxy/services/access/guard.py",
        old="        if _rights(connection).may_consume(request.group):\n"
        "            return True\n"
        '        self.denials.note(connection, "pull"',
        new='        if request.group:\n            return True\n        self.denials.note(connection, "pull"',
        caught_by=(
            f"{MATRIX}::test_every_cell_is_as_the_rules_say_before_and_after_a_reload",
            f"{SDKS}::test_denied_consumer_does_not_spin",
        ),
        rows=("W10",),
    ),
    Mutant(
        name="the head of a chain lends its right to all of it",
        file="proxy/services/access/guard.py",
        old="        for each in results:\n"
        "            if each.group is not None and not may_consume(each.group):\n"
        "                break\n",
        new="        for each in results[:1]:\n"
        "            if each.group is not None and not may_consume(each.group):\n"
        "                break\n",
        caught_by=(f"{DENIALS}::test_head_of_a_chain_lends_its_right_to_nobody",),
    ),
    Mutant(
        name="results need no right",
        file="proxy/services/access/guard.py",
        old="            if each.group is not None and not may_consume(each.group):\n                break\n",
        new="            if each.group is None and not may_consume(each.group):\n                break\n",
        caught_by=(
            f"{DENIALS}::test_results_of_a_denied_pull_are_not_taken",
            f"{DENIALS}::test_member_of_a_chain_without_the_right_is_dropped_and_the_others_count",
        ),
        rows=("W10",),
    ),
    Mutant(
        name="whoever fails to sign in goes on as its network says",
        file="proxy/services/access/sign_in.py",
        old='        connection.rights = Rights("" if rights is None else rights.principal, None, way=DENIED_WAY)\n',
        new="",
        caught_by=(f"{SIGN_IN}::test_wrong_token_ends_the_connection_and_never_falls_back",),
        rows=("W10",),
    ),
    Mutant(
        name="a failed sign-in leaves its connection open",
        file="proxy/services/access/sign_in.py",
        old="        connection.part()\n",
        new="",
        caught_by=(f"{SIGN_IN}::test_wrong_token_ends_the_connection_and_never_falls_back",),
    ),
    Mutant(
        name="a token is taken from a network as it is",
        file="proxy/services/access/sign_in.py",
        old="        elif not (connection.is_encrypted or _is_loopback(connection.host)):\n",
        new="        elif not (connection.host or connection.is_encrypted or _is_loopback(connection.host)):\n",
        caught_by=(f"{SIGN_IN}::test_token_is_not_taken_over_a_network_without_tls",),
    ),
    Mutant(
        name="an expired token goes on where it is in use",
        file=ACCESS,
        old="        return rights.expires_ms is not None and self._clock.wall_ms() >= rights.expires_ms\n",
        new="        return False\n",
        caught_by=(f"{SIGN_IN}::test_expiry_ends_a_living_connection",),
    ),
    Mutant(
        name="a revoked token goes on where it is in use",
        file=ACCESS,
        old="            if stored is None or stored != before.tokens.get(rights.proof):\n"
        "                return None\n",
        new="",
        caught_by=(
            f"{SIGN_IN}::test_revocation_ends_a_living_connection",
            f"{CHANGES}::test_reload_takes_a_token_file_and_the_connections_of_its_tokens",
        ),
    ),
    Mutant(
        name="a wrong secret is taken where the id is right",
        file="proxy/access/tokens.py",
        old="    return stored if is_right and stored is not None",
        new="    return stored if (is_right or True) and stored is not None",
        caught_by=(
            f"{SIGN_IN}::test_wrong_token_ends_the_connection_and_never_falls_back",
            "tests/unit/proxy/access/test_tokens.py::test_every_other_text_proves_nothing",
        ),
    ),
    Mutant(
        name="a log line shows the token that was brought",
        file="proxy/services/access/sign_in.py",
        old='            self._deny(connection, call, "the token is none, is wrong, or has expired: get a new one")\n',
        new='            self._deny(connection, call, f"the token {token} is none, is wrong, or has expired")\n',
        caught_by=(f"{SIGN_IN}::test_token_stands_in_no_log_line_answer_or_file",),
        rows=("W66",),
    ),
    Mutant(
        name="a token says by which algorithm it was signed",
        file="proxy/access/jwts.py",
        old="            algorithms=list(config.algorithms),\n",
        new='            algorithms=[jwt.get_unverified_header(text)["alg"]],\n',
        caught_by=("tests/unit/proxy/access/test_jwts.py::test_token_has_no_say_in_its_algorithm",),
    ),
    Mutant(
        name="a star matches who is nobody",
        file="proxy/access/rules.py",
        old="    return None if principal == ANONYMOUS and found != ANONYMOUS else found\n",
        new="    return found\n",
        caught_by=(
            "tests/unit/proxy/access/test_rules.py::test_anonymous_is_matched_by_no_pattern",
            f"{MATRIX}::test_every_cell_is_as_the_rules_say_before_and_after_a_reload",
        ),
    ),
    Mutant(
        name="a producer's numbers are anybody's",
        file="proxy/services/access/guard.py",
        old="        if not is_own:\n",
        new="        if not is_own and count > 1_000:\n",
        caught_by=(f"{OWNERS}::test_numbers_of_a_producer_are_its_principals",),
    ),
    Mutant(
        name="a restart forgets whose a producer's numbers are",
        file="proxy/access/owners.py",
        old="            self._owners.setdefault(parts[2], owner)\n",
        new="            pass\n",
        caught_by=(
            f"{OWNERS}::test_numbers_of_a_producer_are_its_principals",
            "tests/unit/proxy/access/test_owners.py::test_name_is_of_who_was_first_also_after_a_kill",
        ),
    ),
    Mutant(
        name="who has another's handle decides its transaction",
        file="broker/transaction/ending.py",
        old="        elif who.must_not_know(half.group, half.owner):\n",
        new="        elif who.must_not_know(half.group, half.owner) and not half.owner:\n",
        caught_by=(f"{OWNERS}::test_transaction_is_unknown_to_other_principals",),
    ),
    Mutant(
        name="checks go to every principal of the group",
        file="broker/transaction/checker.py",
        old="            if is_foreign(half.owner, owner):\n",
        new="            if is_foreign(half.owner, None):\n",
        caught_by=(f"{OWNERS}::test_checks_go_to_whose_the_half_is",),
    ),
    Mutant(
        name="who knows the id of another's delayed message cancels it",
        file="broker/scheduled/recurring/cancel.py",
        old='    return not is_foreign(message.properties.get(OWNER_NAME.decode(), ""), owner)\n',
        new="    return True\n",
        caught_by=(f"{OWNERS}::test_delayed_message_is_cancelled_by_whose_it_is",),
    ),
    Mutant(
        name="a waiting pull keeps the right that a reload took",
        file="proxy/port/server.py",
        old="            if rights.may_not_any_more(renewed):\n                connection.withdraw_waiting()\n",
        new="",
        caught_by=(f"{CHANGES}::test_waiting_pull_loses_its_right_by_a_reload",),
    ),
    Mutant(
        name="a reload takes access away",
        file="conf/diff.py",
        old="    if (old.access is None) == (new.access is None):\n        return []\n",
        new="    if (old.access is None) == (new.access is None) or new.access is None:\n        return []\n",
        caught_by=(
            f"{CHANGES}::test_reload_neither_takes_access_away_nor_brings_it",
            "tests/unit/conf/test_conf_access.py::test_change_of_access_is_live_and_its_coming_and_going_is_refused",
        ),
    ),
    Mutant(
        name="while the node starts everybody's results are held",
        file="proxy/services/starting_service.py",
        old="        if connection.rights is not None and self._guard.submit(connection, call, results) is None:\n"
        "            return\n",
        new="",
        caught_by=(f"{CHANGES}::test_results_are_denied_before_they_are_held_and_when_they_are_taken",),
    ),
    Mutant(
        name="denied calls that wait are not bounded",
        file="proxy/services/access/denials.py",
        old="        if self.held >= HELD_MAX or connection.ended:\n",
        new="        if connection.ended:\n",
        caught_by=(f"{DENIALS}::test_denied_calls_that_wait_are_bounded",),
    ),
    Mutant(
        name="a denied call waits as long as it likes",
        file="proxy/services/access/denials.py",
        old="        wait_ms = min(max(linger_ms or 0, LINGER_MS_MIN), LINGER_MS_MAX)\n",
        new="        wait_ms = max(linger_ms or 0, LINGER_MS_MIN)\n",
        caught_by=(f"{DENIALS}::test_denied_call_waits_for_its_linger_and_a_second_at_most",),
    ),
)
