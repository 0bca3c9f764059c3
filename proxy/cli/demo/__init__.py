"""`pyddmq demo`: the demonstrations' commands.

What they show stands in `proxy.demo`.
"""
