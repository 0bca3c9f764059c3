"""Actions that worker processes of the tests import."""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence

from pydantic import BaseModel

from pyddmq.actions import Action, Failed, Job, Status


class Options(BaseModel):
    """Of `Work`."""

    factor: int = 1


class Unportable(Exception):
    """Cannot be pickled."""

    def __init__(self, text: str, lock: object) -> None:
        super().__init__(text)
        self.lock = lock


class Own(BaseException):
    """What no `except Exception` catches, and cannot be shown."""

    def __str__(self) -> str:
        raise KeyboardInterrupt


class Work(Action):
    """Does what the body says."""

    blocking = True
    may_be_last = True
    options_model = Options

    def act(self, job: Job) -> Status:
        """See the class."""
        assert isinstance(self.options, Options)
        what = bytes(job.body).decode()
        self.context.count("worked")
        if what == "hang":
            threading.Event().wait()
        if what == "exit":
            os._exit(3)
        if what == "fail":
            raise Failed("no stock")
        if what == "leave":
            raise SystemExit(3)
        if what == "own":
            raise Own
        if what == "note":
            self.context.note("odd", fact=threading.Lock())
        if what == "odd":
            raise Unportable("odd", threading.Lock())
        if what == "lock":
            job.data = threading.Lock()
        else:
            job.data = {"pid": os.getpid(), "factor": self.options.factor, "key": job.message.key}
            job.outgoing.headers.append(("x", what))
        return Status.CONTINUE


class Batches(Action):
    """Takes batches."""

    blocking = True
    may_be_last = True

    def act_many(self, jobs: Sequence[Job]) -> Sequence[Status | Exception]:
        """Answer every other."""
        return [Status.FINISH if place % 2 else Failed(str(len(jobs))) for place in range(len(jobs))]


class NoOpen(Action):
    """Cannot be opened."""

    blocking = True
    may_be_last = True

    def open(self) -> None:
        """Raise."""
        raise OSError("server is away")

    def act(self, job: Job) -> Status:
        """Never called."""
        return Status.FINISH
