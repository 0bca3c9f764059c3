"""Promise 7: without a right nothing is answered, and a right that ended does not count."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

MUTANTS = (
    Mutant(
        "a pull needs no right",
        "proxy/services/access/guard.py",
        old="""\
        if _rights(connection).may_consume(request.group):
            return True
        self.denials.note(connection, "pull\"""",
        new="""\
        if request.group:
            return True
        self.denials.note(connection, "pull\"""",
        caught_by=(
            "tests/access/test_matrix.py::test_every_cell_is_as_the_rules_say_before_and_after_a_reload",
            "tests/access/test_sdks_without_credentials.py::test_denied_consumer_does_not_spin",
        ),
        rows=("W10",),
    ),
    Mutant(
        "results need no right",
        "proxy/services/access/guard.py",
        old="""\
            if each.group is not None and not may_consume(each.group):
                break
""",
        new="""\
            if each.group is None and not may_consume(each.group):
                break
""",
        caught_by=(
            "tests/access/test_denials.py::test_results_of_a_denied_pull_are_not_taken",
            "tests/access/test_denials.py::test_member_of_a_chain_without_the_right_is_dropped_and_the_others_count",
        ),
        rows=("W10",),
    ),
    Mutant(
        "a client whose sign-in failed continues with the rights of its network",
        "proxy/services/access/sign_in.py",
        old='        connection.rights = Rights("" if rights is None else rights.principal, None, way=DENIED_WAY)\n',
        new="",
        caught_by=("tests/access/test_sign_in.py::test_wrong_token_ends_the_connection_and_never_falls_back",),
        rows=("W10",),
    ),
    Mutant(
        "a revoked token still counts on open connections",
        "proxy/access/access.py",
        old="""\
            if stored is None or stored != before.tokens.get(rights.proof):
                return None
""",
        new="",
        caught_by=(
            "tests/access/test_sign_in.py::test_revocation_ends_a_living_connection",
            "tests/access/test_reload_and_start.py::test_reload_takes_a_token_file_and_the_connections_of_its_tokens",
        ),
    ),
    Mutant(
        "a JWT chooses the algorithm that verifies it",
        "proxy/access/jwts.py",
        old="            algorithms=list(config.algorithms),\n",
        new='            algorithms=[jwt.get_unverified_header(text)["alg"]],\n',
        caught_by=("tests/unit/proxy/access/test_jwts.py::test_token_has_no_say_in_its_algorithm",),
    ),
    Mutant(
        "another principal can decide a transaction by its handle",
        "broker/transaction/ending.py",
        old="        elif who.must_not_know(half.group, half.owner):\n",
        new="        elif who.must_not_know(half.group, half.owner) and not half.owner:\n",
        caught_by=("tests/access/test_owners_node.py::test_transaction_is_unknown_to_other_principals",),
    ),
    Mutant(
        "reading the admin port needs no right",
        "proxy/admin/entry/gate.py",
        old="        self._allow(request, asker, asker.rights, need.action, need.on(request))\n",
        new="        need.on(request)\n",
        caught_by=(
            "tests/access/test_admin_gate.py::test_every_route_is_denied_without_its_right_and_answered_with_it",
            "tests/access/test_admin_gate.py::test_who_may_see_one_name_sees_that_and_no_other",
        ),
        rows=("W10",),
    ),
    Mutant(
        "a page of another site can make changes through a session",
        "proxy/admin/entry/gate.py",
        old="    if origin is not None and origin not in own:\n",
        new='    if origin is not None and origin not in own and request.method == "GET":\n',
        caught_by=(
            "tests/access/test_admin_sign_in.py::test_change_by_a_session_needs_the_origin_that_browsers_send",
            "tests/access/test_admin_gate.py::test_host_and_origin_are_looked_at_on_every_route_but_probes",
        ),
    ),
    Mutant(
        "a push connects to an address that the configuration forbids",
        "actions/http/checked_sockets.py",
        old="""\
    if why is not None:
        raise AddressRefused(why)
""",
        new="",
        caught_by=(
            "tests/unit/actions/http/test_addresses.py::test_socket_is_not_made_for_a_refused_address",
            "tests/unit/actions/http/test_addresses.py::test_name_that_resolves_otherwise_a_moment_later_is_looked_at_again",
        ),
        rows=("W62",),
    ),
    Mutant(
        "connections stay open after the CA of their certificate was removed",
        "proxy/tls/port.py",
        old="            stands = channel.anchor in context.anchors\n",
        new="            stands = True\n",
        caught_by=(
            "tests/tls/test_certificates_change.py::test_connections_of_a_ca_that_has_gone_end",
            "tests/tls/test_certificates_change.py::test_ca_of_the_same_name_is_another",
        ),
    ),
    Mutant(
        "the ports bind every interface by default",
        "conf/sections/node.py",
        old="""\
    host: str = setting(
        "127.0.0.1",
""",
        new="""\
    host: str = setting(
        "0.0.0.0",
""",
        caught_by=(
            "tests/integration/proxy/node/test_ddmq_faults_node.py::test_node_binds_the_loopback_and_names_itself_by_its_configuration",
        ),
        rows=("W10", "W99"),
    ),
)
