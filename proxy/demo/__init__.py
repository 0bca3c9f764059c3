"""`pyddmq demo`: real events through a running node, with the promises checked from outside, over Thrift alone.

`events` reads the sample data, `checker` judges what consumers saw, `run` sends and pulls, `report` is the outcome.
"""
