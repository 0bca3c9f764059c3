"""Whole nodes in virtual time: seeded workloads and faults, and checkers with an account of their own."""
