"""The admin port: health, metrics, a JSON API and a status page. Import `proxy.admin.server` only to start it (D38)."""
