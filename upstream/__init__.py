"""The consuming side without I/O: jobs, the action pipeline, order per key, the pull buffer, acks and their journal.

May import `broker` and `conf`. Sockets and wire formats stay in `proxy`; built-in actions stay in `actions`.
"""
