"""Faults put back, one at a time, and the tests that must notice.

A proof that cannot fail proves nothing. Every test that docs/ddmq-faults.md and docs/mechanisms.md name stands here
beside a *mutant*: the few lines of the product that keep the fault away, and those lines with the fault in them.
`python -m tests.mutants` (`make mutants`) puts each into a copy of the tree and expects the named tests to fail there;
`tests/unit/project/test_mutants.py` holds the catalogue against the pages and against the code that it changes.
"""
