"""Beside the plain disk: one process's alone, one only read, sectors that cannot be read, syncs beside the loop."""
