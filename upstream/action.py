"""The place of the Action protocol before `pyddmq.actions`; it goes with the next version."""

import warnings

from pyddmq.actions import Action, BodyUnprocessable, MessageUnreadable, Status, Unprocessable

__all__ = ["Action", "BodyUnprocessable", "MessageUnreadable", "Status", "Unprocessable"]

warnings.warn("upstream.action is now pyddmq.actions", DeprecationWarning, stacklevel=2)
