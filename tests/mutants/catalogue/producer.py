"""DDMQ's faults of the producer proxy: W79 to W85."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

NODE = "tests/integration/proxy/node/test_ddmq_faults_node.py"

MUTANTS = (
    Mutant(
        name="a rate of 0 messages a second passes the check of a subscription",
        file="conf/models.py",
        old="""    max_tps: Annotated[float, Field(gt=0)] | None = setting(
        None,
        "Messages per second that are read""",
        new="""    max_tps: float | None = setting(
        None,
        "Messages per second that are read""",
        caught_by=("tests/unit/conf/test_conf_loader.py::test_problem_reads_file_line_key_and_sentence",),
        rows=("W79",),
    ),
    Mutant(
        name="a setting that fails at the first send passes the check",
        file="upstream/waiting/limits.py",
        old="        now = self._clock.monotonic()\n        self._tokens = min(",
        new="        if rate < 1:\n"
        '            raise ArithmeticError("a rate below one message a second")\n'
        "        now = self._clock.monotonic()\n        self._tokens = min(",
        caught_by=(f"{NODE}::test_settings_are_refused_or_take_a_send",),
        rows=("W79",),
    ),
    Mutant(
        name="a negative hash chooses a queue below the first",
        file="broker/format/java.py",
        old="    return abs(value) % queues\n",
        new="    return abs(value) % queues if value >= 0 else -(abs(value) % queues)\n",
        caught_by=(
            f"{NODE}::test_hash_of_any_sign_and_size_chooses_a_queue",
            "tests/integration/proxy/node/test_node.py::test_queue_is_chosen_by_partition_then_hash_then_key_then_in_turn",
        ),
        rows=("W80",),
    ),
    Mutant(
        name="what was not stored in a millisecond is sent again",
        file="proxy/services/publishing.py",
        old="        def done(error: StoreError | None) -> None:\n",
        new="""        began, later = self._clock.wall_ms(), self._store.append

        def done(error: StoreError | None) -> None:
            if error is None and self._clock.wall_ms() > began:
                later(puts, born_ms=began, born_host=bytes(8))
""",
        caught_by=(f"{NODE}::test_one_send_is_one_message_whatever_its_timeout",),
        rows=("W81",),
    ),
    Mutant(
        name="of a batch with a bad message the others are stored",
        file="proxy/services/producer_service.py",
        old="""        except Refusal as refusal:
            give_tokens_back(ports)
            refusal.text""",
        new="""        except Refusal as refusal:
            waiting = _NONE_WAITS
            if puts:
                return self._publishing.append(puts, ports, connection, call, stored=_stored_untold)
            refusal.text""",
        caught_by=(f"{NODE}::test_batch_is_checked_like_single_messages_and_stored_whole",),
        rows=("W82",),
    ),
    Mutant(
        name="a send whose write fails is never answered",
        file="proxy/services/publishing.py",
        old="                place.answer(refused(call, ResultCode.FAIL_UNKNOWN, str(error)))\n",
        new="",
        caught_by=(f"{NODE}::test_failed_write_is_answered_and_never_reported_as_stored",),
        rows=("W82",),
    ),
    Mutant(
        name="a send whose write fails is reported as stored",
        file="proxy/services/publishing.py",
        old="                place.answer(refused(call, ResultCode.FAIL_UNKNOWN, str(error)))\n",
        new="                place.answer(stored(call, positions))\n",
        caught_by=(f"{NODE}::test_failed_write_is_answered_and_never_reported_as_stored",),
        rows=("W83",),
    ),
    Mutant(
        name="sends under way at a stop are never answered",
        file="proxy/services/publishing.py",
        old="        def done(error: StoreError | None) -> None:\n",
        new='        def done(error: StoreError | None) -> None:\n            if self._state() == "draining":\n'
        "                return\n",
        caught_by=(f"{NODE}::test_sends_under_way_at_a_stop_or_a_reload_are_answered",),
        rows=("W84",),
    ),
    Mutant(
        name="a topic that was taken out stays writable",
        file="proxy/services/topic_ports.py",
        old="        self.by_name.clear()\n        self.by_name.update(ports)\n",
        new="        self.by_name.update(ports)\n",
        caught_by=(f"{NODE}::test_topic_taken_out_or_disabled_takes_no_more_sends",),
        rows=("W85",),
    ),
    Mutant(
        name="the turn of the queues runs over",
        file="proxy/services/message_checks.py",
        old="                queue_id = port.round = (port.round + 1) % queues\n",
        new="                port.round += 1\n"
        "                if port.round >= 1 << 31:\n"
        "                    port.round -= 1 << 32\n"
        "                queue_id = port.round % queues if port.round >= 0 else -(-port.round % queues)\n",
        caught_by=(f"{NODE}::test_queues_take_turns_beyond_two_to_the_31",),
        rows=("W85",),
    ),
)
