"""The ack log: what became of single messages of a group, all of them or a sample; recorded on demand, bounded."""
