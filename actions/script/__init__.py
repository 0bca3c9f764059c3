"""Actions that decide by what people wrote for it, an expression or a Python function: docs/actions-script.md."""
