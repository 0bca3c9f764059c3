"""Tests that run the installed command as people do."""
