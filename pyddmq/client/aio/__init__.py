"""The clients for asyncio and uvloop."""
