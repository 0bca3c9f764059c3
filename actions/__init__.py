"""The built-in actions and the registry that finds others by name, entry point or dotted path.

May import `upstream`, `conf` and `pyddmq.actions`. An action sees its job and nothing of connections or files.
"""

import warnings
from typing import TYPE_CHECKING

from pyddmq import actions as _public

if not TYPE_CHECKING:
    # Names that people who write actions took from here; they go with the next version.

    def __getattr__(name: str) -> object:
        if name not in ("Action", "Message", "MessageUnreadable", "Status", "Unprocessable", "UpstreamJob"):
            raise AttributeError(f"module 'actions' has no attribute {name!r}")
        warnings.warn(f"actions.{name} is now in pyddmq.actions", DeprecationWarning, stacklevel=2)
        return getattr(_public, "Job" if name == "UpstreamJob" else name)
