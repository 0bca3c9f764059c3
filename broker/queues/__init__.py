"""Consume queues and topics: units by queue offset, what topics there are, committed offsets, queue locks.

May use `runtime` and `format`. Where a record is in the log is a number here.
"""
