"""How messages are taken: pulled by groups, and fetched by offsets."""
