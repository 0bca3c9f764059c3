"""Transactions: half messages, their decisions, and the checks that ask producers for one."""
