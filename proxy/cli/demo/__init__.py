"""`pyddmq demo`: the demonstrations' commands.

What they show is in `proxy.demo`.
"""
