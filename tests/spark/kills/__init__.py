"""SIGKILL of nodes, streaming jobs and exports while all of them run."""
