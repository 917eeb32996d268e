"""The gRPC API: one module for each service, and the server with its bounds, health checks and errors."""
