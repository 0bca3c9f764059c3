"""Who may do what, asked over the wire of a node in virtual time (docs/security.md)."""
