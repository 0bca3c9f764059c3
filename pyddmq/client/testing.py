"""The former name of `pyddmq.testing.client`; refused since version 0.3."""

raise ImportError("pyddmq.client.testing was renamed: import pyddmq.testing.client", name=__name__)
