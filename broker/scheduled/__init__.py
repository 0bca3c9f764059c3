"""Messages that wait: delay levels, timers, recurring messages, and what they share on their way to their topics.

A feature over the log: it may use the core, and the core's loops know nothing of it but its topics.
"""
