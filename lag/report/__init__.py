"""A report on consumption lag over a window, and its forms: one HTML file, Markdown, CSV, JSON."""
