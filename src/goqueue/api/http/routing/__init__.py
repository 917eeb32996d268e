"""Our HTTP router: routes as methods of controllers, found by path, given typed arguments, and described in OpenAPI."""
