"""The client's place before `pyddmq`; it goes with the next version."""

import warnings

from pyddmq.client import *  # noqa: F403
from pyddmq.client import __all__ as __all__

warnings.warn(
    "proxy.client is now pyddmq: import Producer, Consumer and the rest from there", DeprecationWarning, stacklevel=2
)
