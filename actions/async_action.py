"""Async: the place in the pipeline from which on order per key holds (3.5).

In DDMQ it moves the job to a pool of worker threads, and NonBlockAsync to another one; here nothing blocks and both
names mark the same gate. `upstream.running.pipeline` acts on the mark; the action itself is never run.
"""

from __future__ import annotations

from pyddmq.actions import Action, Job, Status


class AsyncAction(Action):
    """Mark the order gate."""

    is_gate = True
    needs_data = False

    def act(self, job: Job) -> Status:
        return Status.CONTINUE
