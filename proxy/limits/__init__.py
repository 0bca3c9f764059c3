"""What one client may take, by its principal and by its address: who is counted, and against what (docs/security.md).

Pure: no sockets, no calls, no services. What a client above a limit is answered is in `proxy.port.gate` and in the
services.
"""
