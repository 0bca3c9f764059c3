"""The broker in the process as a source: the only folder of `upstream/` that knows the store, but for `tools/`.

What groups ask for is in `upstream.source` and `upstream.queues`; nothing that they decide may enter here.
"""
