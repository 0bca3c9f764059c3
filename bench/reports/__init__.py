"""Figures as tables for people, and as JSON."""
