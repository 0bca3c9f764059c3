"""A store and a configuration of version 0.2.0, and the tests that today's node takes them over."""
