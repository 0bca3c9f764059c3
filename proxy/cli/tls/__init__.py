"""Commands below `pyddmq tls`."""
