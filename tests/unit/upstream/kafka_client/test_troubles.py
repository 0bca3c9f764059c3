"""What is wrong with a cluster, told once and in a sentence."""

from __future__ import annotations

from upstream.kafka.link import KafkaFailure
from upstream.kafka_client.troubles import ClientTroubles, sentence_of


class Error:
    """As librdkafka's."""

    def __init__(self, name: str, text: str) -> None:
        self._name, self._text = name, text

    def name(self) -> str:
        """Its code."""
        return self._name

    def str(self) -> str:
        """Its text."""
        return self._text


DOWN = Error("_ALL_BROKERS_DOWN", "1/1 brokers are down")


def world() -> tuple[ClientTroubles, list[KafkaFailure | None]]:
    """Troubles, and what was told of them."""
    reported: list[KafkaFailure | None] = []
    return ClientTroubles(reported.append, lambda text: text.replace("sesame", "***")), reported


def test_reason_is_told_once_however_often_all_are_down() -> None:
    """The user is refused, again and again, with other times each; the next trouble after an answer is a new one."""
    troubles, reported = world()
    for took in (311, 95):
        text = f"ssl://h:1/bootstrap: SASL authentication error: sesame is wrong (after {took}ms in state AUTH_REQ)"
        troubles.note(Error("_AUTHENTICATION", text))
        troubles.note(DOWN)
    [failure] = reported
    assert failure is not None
    assert failure.code == "AUTHENTICATION"
    assert str(failure) == (
        "the cluster rejects the user; check sasl.mechanism, sasl.username and sasl.password "
        "(ssl://h:1/bootstrap: SASL authentication error: *** is wrong) (AUTHENTICATION)"
    )
    troubles.answered()
    troubles.note(DOWN)
    assert [None if each is None else each.code for each in reported] == ["AUTHENTICATION", None, "ALL_BROKERS_DOWN"]


def test_all_down_says_what_a_connection_said() -> None:
    """Which alone is no trouble: another broker may be there."""
    troubles, reported = world()
    troubles.note(Error("_TRANSPORT", "h:1: Connect failed: Connection refused (after 0ms in state CONNECT, 3 more)"))
    assert reported == []
    troubles.note(DOWN)
    assert str(reported[0]) == "1/1 brokers are down; h:1: Connect failed: Connection refused (ALL_BROKERS_DOWN)"


def test_refused_certificate_names_both_reasons() -> None:
    """Librdkafka has one text for them; other words of TLS are left as they are."""
    said = "ssl://h:1/bootstrap: SSL handshake failed: error:0A000086:SSL routines::certificate verify failed: broker"
    assert sentence_of("SSL", said) == (
        "the broker's certificate is rejected: no CA in ssl.ca.location issued it, or it is for another host name (ssl://h:1/bootstrap)"
    )
    assert sentence_of("SSL", "no such file") == "no such file"


def test_program_that_shares_the_group_by_another_strategy_is_named() -> None:
    """The brokers are fine: what to stop is the other program."""
    assert sentence_of("INCONSISTENT_GROUP_PROTOCOL", "JoinGroup failed") == (
        "another program consumes in this group with an assignment strategy other than cooperative-sticky; stop it or "
        "use another group (JoinGroup failed)"
    )


def test_look_that_is_not_answered_is_told_in_the_same_sentences() -> None:
    """Until the cluster answers; what is no code is taken for a cluster that cannot be reached."""
    troubles, reported = world()
    for _ in range(2):
        troubles.unanswered("sesame is wrong (SASL_AUTHENTICATION_FAILED)")
    troubles.answered()
    troubles.unanswered("the process has ended")
    first, nothing, second = reported
    assert first is not None
    assert (first.code, "rejects the user" in str(first), "sesame" in str(first)) == (
        "SASL_AUTHENTICATION_FAILED",
        True,
        False,
    )
    assert nothing is None
    assert second is not None
    assert second.code == "ALL_BROKERS_DOWN"
