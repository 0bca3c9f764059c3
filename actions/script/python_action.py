"""Python: decide about a message, and change it, by a function of one's own (R28; in the place of Groovy scripts).

The function is trusted: it runs in the node, in the loop's thread, with all that Python can do. It is given a
`pyddmq.scripts.Script` and returns true (continue), false (filtered: consumed and counted) or a `Status`. Nothing else:
a function that forgets its `return` must not filter all traffic away in silence, so None is an error. What it raises is
an error with a counter and the outcome that the group chose; DDMQ takes it for filtered (W16).
"""

from __future__ import annotations

import copy
import functools
import importlib
from collections.abc import Callable
from typing import Annotated, Any, Literal

from pydantic import AfterValidator

from actions.script.script import ScriptMessage
from conf.base import Model, Reload, setting
from pyddmq.actions import Action, Failed, Job, MessageUnreadable, RetryLater, Status, TimedOut, Unprocessable
from pyddmq.rooms import ROOMS
from upstream.calls.user_code import as_exception, described, shown

# What becomes of a message for which a script or an expression failed: the group's choice (W16).


OnError = Literal["fail", "skip", "pass"]


def on_error_setting() -> Any:
    """Make the option `onError`."""
    return setting(
        "fail",
        "Result for a message whose evaluation fails: `fail` retries it, then dead-letters it with the "
        "reason; `skip` consumes it; `pass` lets it continue. Counted and logged in every case.",
        reload=Reload.GENERATION,
    )


def status_of_error(action: Action, on_error: OnError, job: Job, error: Exception) -> Status | Exception:
    """Count and report an error, and return the answer that the group chose for it.

    DDMQ takes each error of a script for "filtered" and consumes the message in silence (W16).
    """
    action.context.count("error")
    action.context.note("script_error", qid=job.qid, offset=job.offset, error=described(error))
    if on_error == "fail":
        return error
    action.context.count("skipped" if on_error == "skip" else "passed")
    return Status.FINISH if on_error == "skip" else Status.CONTINUE


MEANT = (MessageUnreadable, Unprocessable, Failed, RetryLater, TimedOut)
"""What a function raises to say what is to become of the message, and what reading it may raise."""


def find_function(path: str) -> Callable[[Any], Any]:
    """Import a function by `package.module:name`.

    Raises:
        ValueError: It cannot be imported or called; the text says what to do.
    """
    module, _, name = path.partition(":")
    if not module or not name:
        raise ValueError(f"{path!r} is not a function path; write package.module:function")
    try:
        found: object = functools.reduce(getattr, name.split("."), importlib.import_module(module))
    except BaseException as error:
        advice = "install its package in this environment, or add its folder to PYTHONPATH"
        if module.partition(".")[0] in ROOMS:
            advice = f"{module.partition('.')[0]} is a module of pyddmq itself; choose another name"
        raise ValueError(f"{path!r} cannot be imported ({described(error)}); {advice}") from error
    if not callable(found) or isinstance(found, type):
        raise ValueError(f"{path!r} is {shown(found):.80}; configure a function of one argument")
    return found


def _check_function(path: str) -> str:
    find_function(path)
    return path


class PythonOptions(Model):
    """Options of Python."""

    function: Annotated[str, AfterValidator(_check_function)] = setting(
        ...,
        "The function, as `package.module:function`; imported once, so changed code needs a restart.",
        reload=Reload.GENERATION,
    )
    on_error: OnError = on_error_setting()


class PythonAction(Action):
    """Call a function for each message."""

    changes_body = True
    options_model = PythonOptions
    options: PythonOptions

    def open(self) -> None:
        self._function = find_function(self.options.function)

    def act(self, job: Job) -> Status:
        # What continues after an error continues as it came.
        keeps = self.options.on_error == "pass"
        data = job.data
        message = ScriptMessage(job, copy.deepcopy(data) if keeps else data, self.context)
        try:
            answer = _status(self._function(message), self.options.function)
        except MEANT:
            raise
        except BaseException as error:
            settled = status_of_error(self, self.options.on_error, job, as_exception(error))
            if isinstance(settled, Exception):
                raise settled from error
            return settled
        if answer is Status.CONTINUE:
            message.hand_over()
        elif answer is Status.FINISH:
            self.context.count("filtered")
        return answer


def _status(answer: object, function: str) -> Status:
    if answer is True:
        return Status.CONTINUE
    if answer is False:
        return Status.FINISH
    if isinstance(answer, Status) and answer is not Status.ASYNCHRONIZED:
        return answer
    raise TypeError(f"{function} returned {shown(answer):.60}; return True to continue, False to filter, or a Status")
