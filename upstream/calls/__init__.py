"""Calls of actions that await or block: made beside the loop's turns, with a time limit, and answered in its thread.

`call` says what a call is; `awaiting` makes those of `async def` actions, `blocking` those of blocking ones, in threads
that `shares` gives out. No job's outcome is decided here: answers go to the subscription that asked.
"""
