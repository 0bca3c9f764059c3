"""The former name of `pyddmq.testing.actions`; refused since version 0.3."""

raise ImportError("pyddmq.action_testing was renamed: import pyddmq.testing.actions", name=__name__)
