"""Thrift on the wire, without any I/O: bytes in, named tuples out, and back.

`frames` cuts a byte stream into frames, `call` reads the header of one, `scanning` its arguments, `replies` and
`pull_reply` write the answers, `generic` does all of that for any method with dicts (cold methods).
Both families of errors are in `errors`: what the peer did wrong, and what we did.
"""
