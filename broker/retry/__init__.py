"""Retry topics: what a group failed and gets again later, and how the log shows that it was sent back (D27, D37)."""
