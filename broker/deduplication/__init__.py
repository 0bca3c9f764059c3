"""Messages that a producer has numbered and sends again are stored once (docs/deduplication.md, D39)."""
