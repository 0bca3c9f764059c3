"""`python -m bench.kafka`: what a message over Kafka costs, as processor time; see `bench.kafka.__main__`."""
