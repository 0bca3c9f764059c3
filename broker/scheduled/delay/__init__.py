"""Delay levels: what waits in the schedule topic, and its delivery."""
