"""Actions that make a body, or parts of a request, out of the parsed body (3.4): docs/actions-transform.md."""
