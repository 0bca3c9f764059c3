"""`pyddmq demo lag`: groups brought into trouble on purpose, and what node and report find of it."""
