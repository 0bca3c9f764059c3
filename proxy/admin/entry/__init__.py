"""Who may ask the admin port for what: the look at each request, the rights of the routes, sessions and their pages."""
