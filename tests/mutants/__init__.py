"""Faults put back, one at a time, and the tests that must notice.

A proof that cannot fail proves nothing. A *mutant* is one fault that would break a promise of docs/promises.md: a few
lines of the product, the same lines with the fault, and the tests that must fail then. `python -m tests.mutants`
(`make mutants`) puts each into a copy of the tree and runs those tests; `tests/unit/project/test_mutants.py` checks
that each still fits the code.
"""
