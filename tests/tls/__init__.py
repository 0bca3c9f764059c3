"""TLS: certificates made for tests, and nodes with encrypted ports over real sockets."""
