"""What a failed call tells its caller: whether it may have taken effect, whether to try again, and in which words."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from pyddmq.client.errors import (
    SEND_REFUSALS,
    CallRejected,
    CallTimedOut,
    CannotConnect,
    ClientError,
    ClientMisuse,
    ConnectionLost,
    NotThrift,
    PullRefused,
    Refused,
    SendRefused,
    Unreachable,
    pull_refusal,
    send_refusal,
)
from pyddmq.codes import PullCode, ResultCode


@pytest.mark.parametrize(
    ("error", "undecided", "retriable", "text"),
    [
        (CannotConnect("h:1", "refused"), False, True, "cannot connect to h:1: refused"),
        (ConnectionLost("h:1", "send", "reset"), True, True, "connection to h:1 was lost during send: reset"),
        (CallTimedOut("h:1", "send", 50), True, True, "h:1 did not answer send within 50 ms"),
        (NotThrift("h:1", "HTTP"), True, False, "the server at h:1 is not a pyddmq Thrift port: HTTP"),
        (CallRejected(1, "no such method"), False, False, "no such method (code 1)"),
        (CallRejected(6, "a fault"), True, False, "a fault (code 6)"),
        (Refused(5, ""), False, False, "code 5"),
    ],
)
def test_error_says_whether_the_call_may_have_taken_effect(
    error: ClientError, undecided: bool, retriable: bool, text: str
) -> None:
    """An application that repeats what may have been done does it twice; what certainly was not it may repeat."""
    assert (error.undecided, error.retriable, str(error)) == (undecided, retriable, text)
    if isinstance(error, Unreachable):
        assert error.sent is undecided


@pytest.mark.parametrize("code", [each for each in ResultCode if each])
def test_each_code_of_a_send_is_an_error_that_says_it(code: ResultCode) -> None:
    """Of its own class where a caller may want to handle it; whether to try again is what the table of codes says."""
    error = send_refusal(code, "why")
    assert type(error) is SEND_REFUSALS.get(code, SendRefused)
    assert (error.code, error.text, str(error)) == (code, "why", f"why (code {int(code)})")
    assert error.retriable is code.retriable
    assert error.undecided is (code in (ResultCode.FAIL_UNKNOWN, ResultCode.FAIL_TIMEOUT))
    assert error.stored is (None if error.undecided else False)


def test_class_of_a_code_names_it() -> None:
    """Its docstring is what a caller reads; no class is without a code."""
    assert {*SEND_REFUSALS.values()} == {*SendRefused.__subclasses__()}
    for code, kind in SEND_REFUSALS.items():
        assert str(code) in (kind.__doc__ or "").partition(":")[0]


@pytest.mark.parametrize("code", list(PullCode))
def test_each_code_of_a_pull_says_whether_to_ask_again(code: PullCode) -> None:
    """A pull changes nothing that could be left half done."""
    error = pull_refusal(code, "why")
    assert (type(error), error.code, error.retriable, error.undecided) == (PullRefused, code, code.retriable, False)


@pytest.mark.parametrize("make", [send_refusal, pull_refusal])
def test_code_of_a_newer_node_is_a_refusal_that_is_not_repeated(make: Callable[[int, str], Refused]) -> None:
    """Nobody knows here what it means."""
    error = make(9999, "")
    assert (error.code, error.retriable, str(error)) == (9999, False, "code 9999")


def test_error_of_the_last_attempt_speaks_for_all_of_them() -> None:
    """One before that may have taken effect makes the call undecided, whatever became of the last one."""
    error = send_refusal(ResultCode.FAIL_REFUSED_BY_RATE_LIMITER, "too fast")
    error.count(2, undecided=False)
    assert (error.attempts, error.stored, str(error)) == (2, False, "too fast (code 15)")
    error.count(3, undecided=True)
    said = "too fast (code 15); an earlier attempt may have taken effect"
    assert (error.attempts, error.stored, str(error)) == (3, None, said)
    error.count(4, undecided=True)
    assert (error.attempts, str(error)) == (4, said)
    assert error.code == 15


def test_own_mistake_is_no_failure_of_the_network() -> None:
    """Who handles what a node may do must not swallow a defect of the program."""
    assert not issubclass(ClientMisuse, ClientError)
    assert issubclass(ClientMisuse, ValueError)
