"""Calls are read from their frames: by protocol, with shapes that come often read at one look."""
