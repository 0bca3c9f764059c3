"""Coverage-guided fuzzing: one function per target takes bytes and raises when a promise is broken.

`make fuzz` searches (`python -m tests.fuzz`, with atheris); `test_corpus.py` replays the seeds and everything that was
ever found, without atheris.
"""
