"""What a Kafka group commits: offsets, what is finished above them, and what has no room in the text of a commit."""
