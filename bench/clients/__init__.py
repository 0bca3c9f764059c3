"""The clients of the measurements: connections, what they send and read, and the processes they run in."""
