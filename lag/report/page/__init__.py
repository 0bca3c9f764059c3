"""The forms of a report: one HTML file with its charts, Markdown, CSV, JSON."""
