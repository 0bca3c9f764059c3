"""DDMQ's races and leaks of jobs, permits and settings: W36 to W50."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

PIPELINE = "tests/integration/upstream/test_ddmq_faults_pipeline.py"
GROUP = "tests/unit/upstream/delivery/test_group.py"
BUFFER = "tests/unit/upstream/waiting/test_buffer.py"
RELOAD = "tests/simulation/test_reload.py"
DIFF = "tests/unit/conf/test_conf_diff.py"

MUTANTS = (
    Mutant(
        name="finishing a job twice frees its permit twice and runs its successor twice",
        file="upstream/delivery/subscription.py",
        old="        if not is_in_action(job):\n            return False\n",
        new="        if not is_in_action(job):\n            self.outcomes.over(job)\n            return True\n",
        caught_by=(f"{PIPELINE}::test_job_settled_twice_is_finished_once",),
        rows=("W36",),
    ),
    Mutant(
        name="a step that the table of states does not have is passed over",
        file="upstream/state.py",
        old='    assert following is not None, f"offset {job.offset}: {event.name} in {job.state.name}"\n',
        new="    following = following or job.state\n",
        caught_by=("tests/unit/upstream/delivery/test_state.py::test_step_outside_the_table_trips_an_assertion",),
        rows=("W36",),
    ),
    Mutant(
        name="a permit that is released twice makes the limit grow",
        file="upstream/waiting/limits.py",
        old='        assert self.used >= 0, "a permit was released twice"\n',
        new="",
        caught_by=("tests/unit/upstream/waiting/test_limits.py::test_permit_released_twice_trips_an_assertion",),
        rows=("W36",),
    ),
    Mutant(
        name="an arrival takes a waiting pull off that it cannot serve",
        file="upstream/waiting/buffer.py",
        old="""            parked = self._first_parked(line)
            if parked is None:
                return
            batch = self.take(parked.topic, parked.count_max, parked.holder)
            if batch is None:
                return
            self.unpark(parked)
""",
        new="""            waiting = [each for other in self._lines.values() for each in other.parked if each.open]
            parked = self._first_parked(line) or next(iter(waiting), None)
            if parked is None:
                return
            self.unpark(parked)
            batch = self.take(parked.topic, parked.count_max, parked.holder)
            if batch is None:
                return
""",
        caught_by=(f"{PIPELINE}::test_parked_pulls_survive_arrivals_that_they_cannot_take",),
        rows=("W40",),
    ),
    Mutant(
        name="messages fail whose waiting pull cannot take them",
        file="upstream/delivery/group.py",
        old="            subscription.outcomes.give_back(batch.jobs, holder)\n",
        new="            for job in batch.jobs:\n"
        "                subscription.outcomes.leave_delivery(job)\n"
        '                subscription.outcomes.fail(job, "its reply did not leave")\n',
        caught_by=(f"{BUFFER}::test_wake_that_gives_its_batch_back_serves_the_next_pull",),
        rows=("W40",),
    ),
    Mutant(
        name="the limit of the lag keeps a permit each time it says no",
        file="upstream/embedded/source.py",
        old="                if room < len(group_queue.pending) and not group_queue.retries:\n",
        new="                self._subscription.permits.used += not room\n"
        "                if room < len(group_queue.pending) and not group_queue.retries:\n",
        caught_by=(f"{PIPELINE}::test_lag_limit_takes_no_permits",),
        rows=("W41",),
    ),
    Mutant(
        name="attempts that get no permit spend rate tokens",
        file="upstream/running/admission.py",
        old="            bucket.take(taken)\n",
        new="            bucket.take(max(taken, 1))\n",
        caught_by=(f"{PIPELINE}::test_rate_tokens_are_not_spent_while_permits_are_out",),
        rows=("W42",),
    ),
    Mutant(
        name="a rate's tokens are spent when the message is consumed",
        file="upstream/running/admission.py",
        old="            bucket.take(taken)\n",
        new="            bucket.take(0)\n",
        caught_by=(f"{GROUP}::test_rate_limit_starts_no_more_than_max_tps",),
        rows=("W42",),
    ),
    Mutant(
        name="permits belong to a topic, whichever generation its jobs are of",
        file="upstream/outcomes/outcomes.py",
        old="        self.permits = Permits(config.concurrency)\n",
        new='        self.permits = vars(buffer).setdefault(f"permits {config.topic}", Permits(config.concurrency))\n',
        caught_by=(f"{PIPELINE}::test_jobs_of_an_old_generation_release_nothing_of_the_new_one",),
        rows=("W43",),
    ),
    Mutant(
        name="what could not start is not tried again",
        file="upstream/delivery/generations.py",
        old="        slot.again = self._scheduler.call_later(_START_AGAIN_SECONDS, self.start_slot, slot)\n",
        new="",
        caught_by=(f"{PIPELINE}::test_subscription_that_cannot_start_holds_nobody_up_and_is_tried_again",),
        rows=("W45",),
    ),
    Mutant(
        name="a reload ends what runs before it looks at what is to come",
        file="proxy/node/reload.py",
        old="        try:\n            loaded = self._read()\n",
        new="        for group in self._node.groups.values():\n            group.begin_drain()\n"
        "        try:\n            loaded = self._read()\n",
        caught_by=(f"{RELOAD}::test_bad_reload_names_the_place_and_changes_nothing",),
        rows=("W45",),
    ),
    Mutant(
        name="an edited alarm threshold starts consumption anew",
        file="conf/models.py",
        old='    enable_alarm: bool = setting(True, "Whether lag reports warn about this '
        'subscription.", reload=_LIVE)\n',
        new='    enable_alarm: bool = setting(True, "Whether lag reports warn about this subscription.", '
        "reload=_GENERATION)\n",
        caught_by=(f"{DIFF}::test_alarm_thresholds_leave_delivery_alone",),
        rows=("W46",),
    ),
    Mutant(
        name="changes of what shapes delivery are not seen",
        file="conf/diff.py",
        old="        if renewed and subscription.enabled:\n",
        new="        if renewed and not subscription.enabled:\n",
        caught_by=(f"{DIFF}::test_what_shapes_delivery_starts_a_generation",),
        rows=("W46",),
    ),
    Mutant(
        name="every reload starts the consumption of all groups anew",
        file="proxy/node/reload.py",
        old="        for step in steps.values():\n            step()\n",
        new="""        for group in node.groups.values():
            for name in group.topic_names():
                group.restart_topic(name, lambda: [each.adopted.clear() for each in group.group_queues()])
        for step in steps.values():
            step()
""",
        caught_by=(f"{RELOAD}::test_unanswered_delivery_of_an_untouched_group_survives_a_reload",),
        rows=("W46",),
    ),
    Mutant(
        name="timers of a group that was stopped run on",
        file="upstream/outcomes/outcomes.py",
        old="        self.stopped = self.leaving.stopped = True\n        self.deadlines.clear()\n",
        new="        self.stopped = self.leaving.stopped = True\n",
        caught_by=(f"{PIPELINE}::test_stopped_group_leaves_nothing_behind",),
        rows=("W48",),
    ),
    Mutant(
        name="a generation keeps the settings with which its jobs were read",
        file="upstream/delivery/subscription.py",
        old="        self._set_limits(config)\n        self.deadlines.set_timeout(self.timeout_seconds)\n",
        new="        self.deadlines.set_timeout(self.timeout_seconds)\n",
        caught_by=(f"{PIPELINE}::test_retried_job_follows_the_settings_in_force",),
        rows=("W49",),
    ),
    Mutant(
        name="the buffer takes any number of jobs",
        file="upstream/waiting/buffer.py",
        old="        room = self.jobs < limits.jobs_max and self.bytes < limits.bytes_max and not self.budget.level\n",
        new="        room = self.bytes < limits.bytes_max and not self.budget.level\n",
        caught_by=(f"{BUFFER}::test_buffer_bound_stops_reading_but_leaves_every_topic_a_batch",),
        rows=("W50",),
    ),
    Mutant(
        name="any number of jobs waits behind keys",
        file="upstream/delivery/subscription.py",
        old="        if self.order.waiting + stops.held >= waiting_max:\n            if not",
        new="        if self.order.waiting < 0:\n            if not",
        caught_by=(f"{GROUP}::test_waiting_jobs_at_their_cap_stop_the_reading_and_are_named",),
        rows=("W50",),
    ),
    Mutant(
        name="withdrawn pulls stay in their line",
        file="upstream/waiting/buffer.py",
        old="        if len(waiting) > 2 * self.parked_count + 64:\n",
        new="        if len(waiting) < 0:\n",
        caught_by=(f"{BUFFER}::test_withdrawn_pulls_do_not_pile_up",),
        rows=("W50",),
    ),
    Mutant(
        name="messages pass without a permit",
        file="upstream/running/admission.py",
        old="        room = min(len(ready), permits.free, self._count_max)\n",
        new="        room = len(ready)\n",
        caught_by=(f"{GROUP}::test_concurrency_counts_only_jobs_past_the_gate",),
        rows=("W44",),
    ),
    Mutant(
        name="the proxies that a topic names decide who consumes it",
        file="conf/foreign.py",
        old='        "proxies": _warn(_ONE_NODE),\n',
        new='        "proxies": _refuse(_ONE_NODE),\n',
        caught_by=("tests/unit/conf/test_conf_loader.py::test_ddmqs_harmless_fields_are_warnings_with_a_reason",),
        rows=("W47",),
    ),
)
