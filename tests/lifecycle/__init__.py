"""The lives that the pages tell in tables of states, walked row by row and killed at every change of the disk."""
