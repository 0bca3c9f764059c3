"""The permit events over topics in Kafka: two node processes, one of which is killed."""
