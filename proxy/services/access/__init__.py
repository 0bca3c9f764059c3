"""What calls need a right for, and what they are answered without it (docs/security.md); `proxy.access` decides."""
