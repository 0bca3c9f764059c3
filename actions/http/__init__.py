"""AsyncHttp: messages pushed to URLs. One module makes sockets (`edge`), the others only decide."""
