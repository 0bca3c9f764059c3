"""Typed configuration: the models, the loader that names file, line and key, and commented YAML examples.

Imports nothing of this project. What an action needs from its subscription is handed to the loader as a mapping.
"""
