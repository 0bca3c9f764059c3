"""The command `pyddmq`: typer commands, what they print, and the table of exit codes (docs/commands.md).

Only `main.py` is read by an interpreter that is too old; everything else may use the language of Python 3.11.
"""
