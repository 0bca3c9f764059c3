"""The commit log: what is appended, how it becomes durable together, and how it is read again in order.

May use `runtime`, `format` and `queues`. What a feature makes of a record is not known here.
"""
