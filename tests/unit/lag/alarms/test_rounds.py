"""Alarms over rounds: for how long, when closed, repeated, muted; and over any sequence with kills at any point."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from lag.alarms.lines import AlarmLines
from lag.alarms.model import SILENT, AlarmRule, AlarmState, Finding, JudgedRound, Mute, alarm_id
from lag.alarms.rounds import OUTBOX_MAX, AlarmPolicy, take_round, take_silence
from lag.alarms.state import FOLDER, AlarmFile
from pyddmq.testing import SimDisk
from tests.unit.lag.alarms.written import lines_of

RULE = AlarmRule(for_ms=20_000, close_after_ms=30_000)


def policy(rule: AlarmRule) -> AlarmPolicy:
    """Return a policy of one rule."""
    return AlarmPolicy(rules=(rule,))


def judged(time_ms: int, *statuses: str, group: str = "g") -> JudgedRound:
    """Return a round with a queue of each status."""
    found = tuple(
        Finding(group=group, topic="t", queue=queue, status=status, lag=queue) for queue, status in enumerate(statuses)
    )
    return JudgedRound(cluster="c", node="n", time_ms=time_ms, findings=found)


def run(rounds: list[tuple[int, str]], rule: AlarmRule = RULE, state: AlarmState | None = None) -> list[Any]:
    """Return what is told of rounds of one queue, as event and moment."""
    state = state or AlarmState()
    for time_ms, status in rounds:
        take_round(state, judged(time_ms, status), policy(rule))
    return [(event["event"], event["timeMs"]) for event, _ in state.outbox]


def test_alarm_opens_when_its_status_held_for_long_enough() -> None:
    """And not a round earlier; a status that goes meanwhile begins anew."""
    assert run([(0, "STOP"), (10_000, "STOP")]) == []
    assert run([(0, "STOP"), (10_000, "STOP"), (20_000, "STOP"), (30_000, "STOP")]) == [("opened", 20_000)]
    assert run([(0, "STOP"), (10_000, "OK"), (20_000, "STOP"), (30_000, "STOP")]) == []


def test_alarm_closes_after_its_delay_and_not_while_nothing_is_known() -> None:
    """A status that comes back within the delay is the same alarm; UNKNOWN is no recovery."""
    opened = [(0, "STOP"), (20_000, "STOP")]
    assert run([*opened, (30_000, "OK"), (50_000, "STOP"), (60_000, "OK")]) == [("opened", 20_000)]
    assert run([*opened, (30_000, "OK"), (60_000, "OK")]) == [("opened", 20_000), ("closed", 60_000)]
    assert run([*opened, (30_000, "UNKNOWN"), (90_000, "UNKNOWN")])[:1] == [("opened", 20_000)]
    assert ("closed", 90_000) not in run([*opened, (30_000, "INCOMPLETE"), (90_000, "INCOMPLETE")])


def test_group_that_is_gone_closes_its_alarm() -> None:
    """Nothing alarms for ever about a group that was deleted."""
    state = AlarmState()
    for time_ms in (0, 20_000):
        take_round(state, judged(time_ms, "STOP"), policy(RULE))
    for time_ms in (30_000, 60_000):
        take_round(state, JudgedRound(cluster="c", node="n", time_ms=time_ms, findings=()), policy(RULE))
    assert [event["event"] for event, _ in state.outbox] == ["opened", "closed"]
    assert state.alarms == {}


def test_open_alarm_is_repeated_and_each_telling_has_its_own_key() -> None:
    """Numbers count from 0 without a gap."""
    rule, state = AlarmRule(for_ms=0, close_after_ms=0, repeat_ms=60_000), AlarmState()
    run([(at * 30_000, "STALL") for at in range(6)] + [(200_000, "OK")], rule, state)
    told = [event for event, _ in state.outbox]
    assert [event["event"] for event in told] == ["opened", "repeated", "repeated", "closed"]
    assert [event["number"] for event in told] == [0, 1, 2, 3]
    assert len({event["key"] for event in told}) == 4
    assert {event["id"] for event in told} == {alarm_id("c", "g", "STALL", 0)}


def test_muted_group_is_told_of_when_the_mute_ends_and_the_alarm_does_not() -> None:
    """An alarm that opened and closed under the mute is never told; one that was told before is told closed."""
    rule = AlarmRule(close_after_ms=0)
    state = AlarmState(mutes={"g": Mute(until_ms=50_000, reason="deploy")})
    assert run([(0, "STOP"), (10_000, "OK")], rule, state) == []
    assert run([(20_000, "STOP"), (50_000, "STOP")], rule, state) == [("opened", 50_000)]
    assert state.mutes == {}
    state.mutes["g"] = Mute(until_ms=100_000)
    assert run([(60_000, "OK")], rule, state)[-1] == ("closed", 60_000)


def test_worst_queue_speaks_for_the_group() -> None:
    """That with the largest lag; others are counted."""
    state = AlarmState()
    take_round(state, judged(0, "STOP", "OK", "STOP"), policy(AlarmRule()))
    [(event, sinks)] = state.outbox
    assert (event["queue"], event["queues"], event["severity"], sinks) == (2, 2, "critical", ("file",))


def test_rule_that_a_reload_took_out_closes_its_alarms() -> None:
    """What no rule asks for is no alarm."""
    state = AlarmState()
    take_round(state, judged(0, "STOP"), policy(AlarmRule()))
    take_round(state, judged(10_000, "STOP"), policy(AlarmRule(groups=("other*",))))
    assert [event["event"] for event, _ in state.outbox] == ["opened", "closed"]


def test_silence_of_a_node_opened_when_it_became_too_long_whenever_it_is_seen() -> None:
    """Two that look at different moments come to one id; the node's next round ends it."""
    early, late = AlarmState(), AlarmState()
    rules = policy(AlarmRule(close_after_ms=0))
    assert not take_silence(early, ("c", "n"), 1_000, 30_000, rules)
    assert take_silence(early, ("c", "n"), 1_000, 61_000, rules)
    assert take_silence(late, ("c", "n"), 1_000, 900_000, rules)
    assert not take_silence(late, ("c", "n"), 1_000, 900_001, rules)
    assert early.outbox == late.outbox
    assert early.outbox[0][0]["id"] == alarm_id("c", "node n", SILENT, 61_000)
    take_round(early, judged(950_000, "OK"), rules)
    assert [event["event"] for event, _ in early.outbox] == ["opened", "closed"]


def test_clock_that_goes_back_holds_no_alarm_up() -> None:
    """What began in the future begins now."""
    assert run([(1_000_000, "STOP"), (0, "STOP"), (20_000, "STOP")]) == [("opened", 20_000)]


def test_outbox_is_bounded() -> None:
    """A place that never takes anything costs its oldest tellings, counted."""
    state, rule = AlarmState(), AlarmRule(close_after_ms=0)
    run([(at, "STOP" if at % 2 else "OK") for at in range(OUTBOX_MAX + 101)], rule, state)
    assert len(state.outbox) == OUTBOX_MAX
    assert state.dropped == 100


STATUS = st.sampled_from(["STOP", "WARN", "OK", "UNKNOWN", "STALL"])


@settings(max_examples=200, deadline=None)
@given(
    rounds=st.lists(st.tuples(STATUS, STATUS), min_size=1, max_size=30),
    kills=st.sets(st.integers(min_value=0, max_value=119)),
    rule=st.sampled_from([RULE, AlarmRule(), AlarmRule(close_after_ms=0, repeat_ms=25_000)]),
)
def test_kills_anywhere_tell_each_event_once_and_lose_none(
    rounds: list[tuple[str, str]], kills: set[int], rule: AlarmRule
) -> None:
    """Whoever is killed before or after the state's write, or the file's, goes on as if it had not been.

    The round that was under way is judged again unless the state says that it was taken: so does `watch`.
    """
    expected = AlarmState()
    for at, statuses in enumerate(rounds):
        take_round(expected, judged(at * 10_000, *statuses), policy(rule))
    disk = SimDisk()
    steps = iter(range(1_000_000))

    def killed() -> bool:
        return next(steps) in kills

    def live() -> bool:
        file, lines = AlarmFile(disk, FOLDER), AlarmLines(disk, "out/alarms.jsonl")
        state = file.load()
        assert file.trouble is None

        def deliver() -> bool:
            if killed():
                return False
            took = lines.append(state.waiting("file"))
            return not killed() and state.took("file", took) in (True, False)

        if not deliver():
            return False
        for at in range(state.marks.get("next", 0), len(rounds)):
            take_round(state, judged(at * 10_000, *rounds[at]), policy(rule))
            state.marks["next"] = at + 1
            if killed():
                return False
            file.save(state)
            if not deliver():
                return False
        return True

    while not live():
        pass
    assert [event["key"] for event in lines_of(disk, "out/alarms.jsonl")] == [
        event["key"] for event, _ in expected.outbox
    ]
