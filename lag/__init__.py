"""Consumption lag: what is recorded, the rules that judge it, and reports of it. See docs/lag.md."""
