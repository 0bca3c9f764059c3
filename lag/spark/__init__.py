"""Lag over Spark: rules as columns, sessions, sources and jobs. Only this folder imports PySpark (extra `spark`).

Nothing here decides what a lag means: that is in `lag.rules`.
"""
