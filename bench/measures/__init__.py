"""The measurements: each loads a server and returns figures."""
