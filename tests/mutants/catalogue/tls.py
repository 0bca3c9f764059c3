"""TLS: who is let in, what counts as handed out, and what a change of certificates takes back."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

SHAKES = "tests/tls/test_handshakes.py"
COUNTS = "tests/tls/test_what_counts.py"
CHANGE = "tests/tls/test_certificates_change.py"
FILES = "tests/tls/test_files.py"

MUTANTS = (
    Mutant(
        name="clear bytes are compared with what the peer's system acknowledged",
        file="proxy/port/replying.py",
        old="self._carried.append((self._sent if self._tls is None else self._tls.sent, lost))\n",
        new="self._carried.append((self._sent, lost))\n",
        caught_by=(f"{COUNTS}::test_reset_gives_back_what_the_peer_acknowledged_nothing_of",),
    ),
    Mutant(
        name="the transport below may buffer before it says that the kernel is full",
        file="proxy/tls/channel.py",
        old="        self.below.set_write_buffer_limits(high, low)\n",
        new="        pass\n",
        caught_by=(f"{COUNTS}::test_kernel_that_takes_no_more_is_noticed_at_once",),
    ),
    Mutant(
        name="a session is taken up again without a look at the certificate",
        file="proxy/tls/channel.py",
        old="        if self.context.asks and self._engine.session_reused:\n",
        new="        if False:\n",
        caught_by=(f"{SHAKES}::test_no_session_is_taken_up_where_certificates_are_asked_for",),
    ),
    Mutant(
        name="a client whose session was refused brings it again for ever",
        file="proxy/tls/channel.py",
        old="            self._forget_session(self._engine)\n",
        new="",
        caught_by=(f"{SHAKES}::test_no_session_is_taken_up_where_certificates_are_asked_for",),
    ),
    Mutant(
        name="half-open handshakes live for ever",
        file="proxy/tls/port.py",
        old='            channel.fail(Failure("timeout"), at_once=True)\n',
        new="            pass\n",
        caught_by=(f"{SHAKES}::test_thousand_half_open_handshakes",),
    ),
    Mutant(
        name="a handshake's end is not looked at under the context in force",
        file="proxy/tls/channel.py",
        old="        why = self._port.refusal(self, now) if now is not self.context else None\n",
        new="        why = None\n",
        caught_by=(f"{CHANGE}::test_handshake_that_was_begun_before_the_ca_went_is_refused",),
    ),
    Mutant(
        name="connections outlive the CA that stands for them",
        file="proxy/tls/port.py",
        old="            stands = channel.anchor in context.anchors\n",
        new="            stands = True\n",
        caught_by=(
            f"{CHANGE}::test_connections_of_a_ca_that_has_gone_end",
            f"{CHANGE}::test_ca_of_the_same_name_is_another",
        ),
    ),
    Mutant(
        name="connections outlive their certificate",
        file="proxy/tls/port.py",
        old="            if channel.certificate is not None and channel.certificate.not_after_ms <= now_ms:\n",
        new="            if False:\n",
        caught_by=(f"{CHANGE}::test_connection_ends_with_its_certificate",),
    ),
    Mutant(
        name="connections of a certificate that was revoked go on",
        file="proxy/tls/port.py",
        old='        return "revoked" if context.is_revoked(channel.der) else None\n',
        new="        return None\n",
        caught_by=(f"{CHANGE}::test_revoked_certificate_is_refused_and_its_connections_end",),
    ),
    Mutant(
        name="a changed file is read while its other half is still the old one, and never again",
        file="proxy/tls/ports.py",
        old="        if now == self._read or now != seen:\n",
        new="        if now == self._read or now != seen or self.refused:\n",
        caught_by=(f"{CHANGE}::test_half_a_pair_changes_nothing_until_the_other_half_is_there",),
    ),
    Mutant(
        name="all handshakes that are due are made in one turn",
        file="proxy/tls/handshakes.py",
        old="                if self._now() >= until:\n                    break\n",
        new="",
        caught_by=(f"{FILES}::test_handshakes_leave_time_for_others",),
    ),
)
