"""Retry topics: what a group failed and gets again later, and how the log tells that it was sent back (D27, D37)."""
