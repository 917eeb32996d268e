"""The HTTP API: the application, and rooms for serving, bodies, routes and the schema registry."""
