"""Staged situations of a node in virtual time, and the verdict that every place must give of each."""
