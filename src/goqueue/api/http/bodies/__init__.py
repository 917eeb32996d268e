"""Bodies and parameters of requests and responses, and errors."""
