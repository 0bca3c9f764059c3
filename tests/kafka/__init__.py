"""What we say of Kafka, by a real one: `make kafka`."""
