"""The sinks by themselves: each over a server in memory, and over the real one where it is at hand."""
