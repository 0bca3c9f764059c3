"""TLS on a port: contexts made of files, the handshake, and bytes on their way through it.

It knows nothing of what a connection carries: any asyncio protocol can be put behind it. The standard library's `ssl`
does all of the cryptography; here is decided when a context is made, which one a connection gets, and when it must end.
"""
