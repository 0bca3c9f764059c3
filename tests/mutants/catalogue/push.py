"""DDMQ's HTTP push: W15, W19, W62 to W65."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

UNIT = "tests/unit/actions/http"
LETTERS = "tests/simulation/test_pushes.py::test_what_push_gives_up_is_a_dead_letter"

MUTANTS = (
    Mutant(
        name="a push that failed counts as consumed",
        file="actions/http/action.py",
        old='            raise PushFailed(f"{ticket.target.url}: {failure}", delay_ms=failure.delay_ms) from None\n',
        new='            return Reply(200, b"", {})\n',
        caught_by=(LETTERS,),
        rows=("W15",),
    ),
    Mutant(
        name="business failures of a push count against maxRetry",
        file="actions/http/action.py",
        old='            raise Failed(f"{url} answered {reason}")\n',
        new='            raise PushFailed(f"{url} answered {reason}")\n',
        caught_by=(LETTERS,),
        rows=("W19",),
    ),
    Mutant(
        name="the address of a message's URL is not looked at where it is connected to",
        file="actions/http/edge.py",
        old="    if why is not None:\n        raise AddressRefused(why)\n",
        new="",
        caught_by=(
            f"{UNIT}/test_addresses.py::test_socket_is_not_made_for_a_refused_address",
            f"{UNIT}/test_addresses.py::test_name_that_resolves_otherwise_a_moment_later_is_looked_at_again",
        ),
        rows=("W62",),
    ),
    Mutant(
        name="the text of a message's URL is not looked at",
        file="actions/http/callback.py",
        old="    if not any(origin.matches(scheme, host, port) for origin in origins):\n",
        new="    if False:\n",
        caught_by=(f"{UNIT}/test_addresses.py::test_origin_of_the_list_matches_itself_and_nothing_near",),
        rows=("W62",),
    ),
    Mutant(
        name="a message may set every header",
        file="actions/http/request.py",
        old="            if not self._allows(name.lower()):\n",
        new="            if False:\n",
        caught_by=(f"{UNIT}/test_request.py::test_only_named_headers_of_a_message_are_sent",),
        rows=("W62",),
    ),
    Mutant(
        name="the signature leaves the body out",
        file="actions/http/signature.py",
        old='hmac.digest(secret, head + body, "sha256")',
        new='hmac.digest(secret, head, "sha256")',
        caught_by=(f"{UNIT}/test_signature.py::test_signature_changes_with_each_part",),
        rows=("W63",),
    ),
    Mutant(
        name="every key beside from_chronos is taken for an id",
        file="actions/http/request.py",
        old="        if found is not None:\n            return int(found[1])\n",
        new='        return int(message.key.split("-")[4])\n',
        caught_by=(
            f"{UNIT}/test_request.py::test_request_count_of_a_loop_is_in_its_key_and_any_other_key_is_harmless",
        ),
        rows=("W64",),
    ),
    Mutant(
        name="a new rate begins with a burst",
        file="actions/http/pace.py",
        old="        self._tokens = 0.0\n",
        new="        self._tokens = 1e9\n",
        caught_by=(f"{UNIT}/test_pace.py::test_rate_is_kept_from_the_first_request_on",),
        rows=("W65",),
    ),
    Mutant(
        name="who stands in line keeps the rate of when he came",
        file="actions/http/pace.py",
        old="call_later(min(wait, LOOK_SECONDS_MAX), self._serve)",
        new="call_later(wait, self._serve)",
        caught_by=(f"{UNIT}/test_pace.py::test_changed_rate_holds_for_who_stands_in_line",),
        rows=("W65",),
    ),
    Mutant(
        name="retries of a push come back together",
        file="upstream/delivery/subscription.py",
        old="            self.outcomes.jitter = runtime.random.random\n",
        new="            self.outcomes.jitter = None\n",
        caught_by=("tests/simulation/test_pushes.py::test_retries_of_business_failures_are_spread",),
    ),
    Mutant(
        name="a request that crosses the close of a kept connection is an error",
        file="actions/http/client.py",
        old="            if was_kept and ",
        new="            if False and ",
        caught_by=(
            f"{UNIT}/test_client.py::"
            "test_request_is_sent_again_where_a_kept_connection_closed_before_a_byte_of_the_reply",
        ),
    ),
    Mutant(
        name="the next request stands behind the rest of a body that was answered already",
        file="actions/http/client.py",
        old="        if len(body) > LARGE_BYTES and transport",
        new="        if False and transport",
        caught_by=(
            f"{UNIT}/test_client.py::test_large_body_that_was_answered_before_it_was_sent_takes_its_connection_along",
        ),
    ),
)
