"""What becomes of a message for which a script or an expression failed: the group's choice (W16)."""

from __future__ import annotations

from typing import Any, Literal

from conf.base import Reload, setting
from pyddmq.actions import Action, Job, Status
from upstream.calls.user_code import described

OnError = Literal["fail", "skip", "pass"]


def on_error_setting() -> Any:
    """Make the option `onError`."""
    return setting(
        "fail",
        "Result for a message whose evaluation fails: `fail` retries it, then dead-letters it with the "
        "reason; `skip` consumes it; `pass` lets it continue. Counted and logged in every case.",
        reload=Reload.GENERATION,
    )


def settle(action: Action, on_error: OnError, job: Job, error: Exception) -> Status | Exception:
    """Count and tell an error, and return the answer that the group chose for it.

    DDMQ takes each error of a script for "filtered" and consumes the message in silence (W16).
    """
    action.context.count("error")
    action.context.note("script_error", qid=job.qid, offset=job.offset, error=described(error))
    if on_error == "fail":
        return error
    action.context.count("skipped" if on_error == "skip" else "passed")
    return Status.FINISH if on_error == "skip" else Status.CONTINUE
